"""Choices and numbers of the nodes that change a model: whatever a link brings, one sentence and nothing attached."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from paceline.core.errors import PacelineError

NODES = [
    *("ApplyToMe", "CompileUNet", "FuseQKV", "ModelPrecision", "OptimizePreset", "QuantizeInt8"),
    "SetAttentionProcessor",
]
WRONG: list[Any] = ["../x", "os.system", "x\0", "9" * 5000, None, float("nan"), -(10**9), 10**5000, ["a"], {}]


@pytest.mark.parametrize("name", NODES)
def test_no_choice_and_no_number_takes_what_is_not_on_its_list(studio, name):
    from comfy_api.latest import io

    node = studio.nodes[f"Paceline{name}"]
    inputs = node.define_schema().inputs
    defaults = {entry.id: entry.default for entry in inputs if getattr(entry, "default", None) is not None}
    if name == "ApplyToMe":
        defaults["preset"] = "custom"  # else a preset's values take the place of these
    for entry in inputs:
        for wrong in WRONG if isinstance(entry, (io.Combo.Input, io.Int.Input, io.Float.Input)) else []:
            with pytest.raises(PacelineError), torch.inference_mode():
                node.execute(**{**defaults, "model": studio.model, entry.id: wrong})
                pytest.fail(f"{entry.id} took {wrong!r}")


def test_a_vae_of_another_family_is_named(studio):
    from comfy_host import vaes
    from paceline.workbench.comfyui.sampling import decode

    with pytest.raises(PacelineError, match="latents of 4 channels, and those of this model have 16"):
        decode(vaes.taesd(), torch.zeros(1, 16, 8, 8))


def sampled(model, conditioning, latent):
    from paceline.workbench.comfyui.sampling import SamplingJob

    job = SamplingJob(conditioning, conditioning, {"samples": latent}, 0, 1, 1.0, "euler", "simple")
    with torch.inference_mode():
        job.sample(model, 0, time.perf_counter, lambda: None)


def test_a_latent_of_another_family_is_named_and_an_empty_one_fits_any(studio):
    from comfy_host import transformers

    model, conditioning = transformers.build("sd3"), transformers.conditioning("sd3")
    sampled(model, conditioning, torch.zeros(1, 4, 16, 16))
    with pytest.raises(PacelineError, match="latent_image has 4 channels, and this model samples latents of 16"):
        sampled(model, conditioning, torch.ones(1, 4, 16, 16))


@pytest.mark.parametrize(("text", "count"), [(torch.zeros(1, 77, 32), 32), (None, 0)])
def test_a_prompt_of_another_family_is_named(studio, text, count):
    with pytest.raises(PacelineError, match=f"has {count} values for each token"):
        sampled(studio.model, [[text, {}]], torch.zeros(1, 4, 16, 16))
