"""LoRAs of PEFT on an optimized pipeline: loaded before or after, scaled, merged, switched off, deleted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from paceline import FuseQKV, Precision, QuantizeInt8, optimize, restore
from peft import LoraConfig
from random_pipelines import baseline, distance, picture, small

EXACT = 2e-5
SETTINGS = {
    "fused": (FuseQKV(), EXACT),
    "int8": (QuantizeInt8(include="*"), 0.08),
}


def add_lora(pipe: Any) -> None:
    """A LoRA with random weights on attention, feed-forward and convolutions, as LCM's is; strong enough to be seen."""
    targets = ["to_q", "to_k", "to_v", "to_out.0", "proj_in", "proj_out", "ff.net.0.proj", "ff.net.2", "conv1"]
    pipe.unet.add_adapter(LoraConfig(r=4, lora_alpha=8, target_modules=targets))
    generator = torch.Generator().manual_seed(5)
    for name, parameter in pipe.unet.named_parameters():
        if ".lora_" in name:
            parameter.data.normal_(generator=generator, std=0.05)


def plain_with_lora() -> torch.Tensor:
    plain = small("sd15")
    add_lora(plain.pipe)
    return picture(plain)


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_loaded(kind: str, when: str) -> None:
    settings, tolerance = SETTINGS[kind]
    expected = plain_with_lora()
    assert distance(expected, baseline("sd15")) > 0.05
    pipeline = small("sd15")
    if when == "before":
        add_lora(pipeline.pipe)
        optimize(pipeline.pipe, settings)
    else:
        optimize(pipeline.pipe, settings)
        picture(pipeline)
        add_lora(pipeline.pipe)
    assert distance(picture(pipeline), expected) <= tolerance
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), expected)
    pipeline.pipe.unet.delete_adapters("default")


@pytest.mark.parametrize("kind", SETTINGS)
def test_merged_into_the_weights_and_taken_out(kind: str) -> None:
    settings, tolerance = SETTINGS[kind]
    expected = plain_with_lora()
    pipeline = small("sd15")
    optimize(pipeline.pipe, settings)
    picture(pipeline)
    add_lora(pipeline.pipe)
    pipeline.pipe.unet.fuse_lora()
    assert distance(picture(pipeline), expected) <= max(tolerance, 1e-4)
    pipeline.pipe.unet.unfuse_lora()
    pipeline.pipe.unet.disable_adapters()
    assert distance(picture(pipeline), baseline("sd15")) <= max(tolerance, 1e-4)
    restore(pipeline.pipe)


def test_merged_into_weights_of_another_precision_it_stays_when_that_comes_off() -> None:
    expected = plain_with_lora()
    pipeline = small("sd15")
    add_lora(pipeline.pipe)
    optimize(pipeline.pipe, Precision("bf16"))
    pipeline.pipe.unet.fuse_lora()
    restore(pipeline.pipe)
    assert distance(picture(pipeline), expected) <= 0.02
    pipeline.pipe.unet.unfuse_lora()
    pipeline.pipe.unet.disable_adapters()
    assert distance(picture(pipeline), baseline("sd15")) <= 0.02
