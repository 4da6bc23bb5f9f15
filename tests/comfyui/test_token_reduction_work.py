"""The report's estimate of saved work, against torch's own count of the operations that really ran."""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

PLAIN_ATTENTION = "sdpa_math"  # of matrix products that the counter sees on every device


def counted(studio, model, **options):
    """Return the operations of one sampling step with one pass."""
    with FlopCounterMode(display=False) as counter:
        studio.sample(studio.attention(model, PLAIN_ATTENTION), steps=1, cfg=1.0, **options)
    return counter.get_total_flops()


def sdxl_inputs():
    conditioning = [[torch.zeros(1, 77, 64), {"pooled_output": torch.zeros(1, 1280)}]]
    return {"positive": conditioning, "negative": conditioning}


@pytest.mark.parametrize("size", [(24, 16), (64, 64)])
@pytest.mark.parametrize("layout", ["sd15", "sdxl"])
def test_a_step_has_the_operations_that_are_counted(studio, sdxl, layout, size):
    from paceline.optimizers.hosts.comfyui.token_reduction.work import StepWork

    model, inputs = (studio.model, {}) if layout == "sd15" else (sdxl, sdxl_inputs())
    estimate = StepWork.of(model.model.diffusion_model).operations(size[0] * size[1])
    assert estimate == pytest.approx(counted(studio, model, size=size, **inputs), rel=0.02)


@pytest.mark.parametrize("settings", [{"method": "kv_downsample", "ratio": 0.75}, {"method": "local_merge"}])
def test_the_report_says_how_much_of_a_step_was_saved(studio, settings):
    size = (64, 48)
    model = studio.tome(studio.model, max_downsample="2", **settings)
    left = counted(studio, model, size=size) / counted(studio, studio.model, size=size)
    report = studio.report(model)
    share = int(re.search(r"about (\d+)% less work in such a step", report).group(1)) / 100
    # Products of merging itself are in the count, and not in the estimate.
    assert share == pytest.approx(1 - left, abs=0.03)
    assert re.search(r"at the latent's size: 3072 -> \d+ in 3 blocks, \d+% less work in self-attention", report)
    assert re.search(r"at 1/2 of the latent's size: 768 -> \d+ in 4 blocks, \d+% less work in self-attention", report)


def test_nothing_is_claimed_for_other_layers(studio):
    model = studio.tome(studio.model, merge_attn=False, merge_mlp=True)
    studio.sample(model)
    assert "less work" not in studio.report(model)
