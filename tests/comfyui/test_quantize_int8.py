"""Quantize int8 on ComfyUI's own models: near full precision, a reason for each layer, errors that help."""

from __future__ import annotations

import re

import pytest
import torch
from cases import often
from comfy_host import checkpoints, in_process
from comfy_host.transformers import build, conditioning, latent
from distances import relative
from int8_models import int8_layers, one_call

# -- the picture ------------------------------------------------------------------------------------------------------


def test_one_call_is_about_as_near_as_one_in_bfloat16(studio, quantize):
    """The floor is what everybody accepts: the same network in bfloat16 instead of float32."""
    model = checkpoints.tiny_sd15(width=64, context=48)
    full = one_call(model)
    floor = relative(one_call(checkpoints.tiny_sd15(width=64, context=48, dtype=torch.bfloat16)), full)
    assert 0.005 < floor < 0.03
    assert 1e-4 < relative(one_call(quantize(model)), full) < 1.5 * floor  # measured: 1.25
    assert 1e-4 < relative(one_call(quantize(model, mode="weight_only")), full) < floor  # 0.72


def test_sampling_stays_near_and_the_report_says_what_was_done(studio, baseline, quantize):
    model = quantize(studio.model)
    assert "70 of 80 linear layers in int8" in studio.report(model) and len(int8_layers(model)) == 70
    assert relative(studio.sample(model), baseline) < 0.05
    report = studio.report(model)
    assert "active in 70 linear layers over 2 model calls" in report and "fallback" not in report


# -- progress, cancelling, errors --------------------------------------------------------------------------------------


def test_progress_is_shown_and_cancelling_leaves_the_model_as_it_was(studio, baseline, quantize):
    import comfy.model_management
    import comfy.utils

    steps = []

    def show(value, total, preview, **_):
        steps.append((value, total))
        if value < total:
            comfy.model_management.interrupt_current_processing(True)

    comfy.utils.set_progress_bar_global_hook(show)
    try:
        # ComfyUI passes on a first step and the last, and in between what the eye can follow.
        with pytest.raises(comfy.model_management.InterruptProcessingException):
            quantize(studio.model)
    finally:
        comfy.utils.set_progress_bar_global_hook(None)
        comfy.model_management.interrupt_current_processing(False)
    assert steps[0] == (1, 80) and steps[-1][0] < 80
    assert torch.equal(studio.sample(studio.model), baseline)


def test_a_module_put_in_by_another_node_is_refused(studio, quantize):
    model = studio.model.clone()
    model.add_object_patch("diffusion_model.time_embed.0", torch.nn.Linear(32, 128))
    with pytest.raises(Exception, match="its own module in the place of diffusion_model.time_embed.0.*after the ones"):
        quantize(model)


# -- other families ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", often(["flux", "wan"], ["flux", "sd3", "qwen_image", "wan", "lumina2"]))
def test_transformers(studio, quantize, name):
    model, text = build(name), conditioning(name)

    def sample(chosen):
        return in_process.sample(chosen, text, text, latent(name), steps=1, seed=7, cfg=1.0, scheduler="simple")

    before = sample(model)
    converted = quantize(model, include="attn, mlp, ff, linear1, linear2, attention., feed_forward")
    layers = int8_layers(converted)
    assert layers
    borders = r"modulation|adaLN|_in\b|embed|final_layer|head\b|norm_out|proj_out$"
    assert not [name for name in layers if re.search(borders, name)]
    assert 0 < relative(sample(converted), before) < 0.05
    assert torch.equal(sample(model), before)
    assert "fallback" not in studio.report(converted)
