"""Copies of optimized components are plain and whole, whoever makes them: they compute with their own weights."""

from __future__ import annotations

import copy
from types import MethodType
from typing import Any

import torch
from accelerate import cpu_offload_with_hook
from accelerate.utils import convert_outputs_to_fp32, extract_model_from_parallel
from paceline import (
    Attention,
    FuseQKV,
    Precision,
    TokenMerging,
    optimize,
    report,
    restore,
)
from random_pipelines import differences, picture, small, state_of

MERGED = TokenMerging(method="merge", ratio=0.5)


def halved(pipeline: Any) -> torch.Tensor:
    """The picture after all weights of the UNet were halved: what a LoRA, an average or training does to a copy."""
    with torch.no_grad():
        for parameter in pipeline.pipe.unet.parameters():
            parameter.mul_(0.5)
    return picture(pipeline)


def test_a_copy_keeps_what_was_merged_into_weights_of_another_precision() -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, Precision("bf16"))
    weight = pipeline.pipe.unet.conv_in.weight
    with torch.no_grad():
        weight.mul_(2)
    copied = copy.deepcopy(pipeline.pipe.unet).conv_in.weight
    assert copied.dtype == torch.float32 and torch.equal(copied, weight.float())


def test_a_copy_of_what_accelerate_has_wrapped_since() -> None:
    def mixed(unet: Any) -> None:  # what Accelerator.prepare does
        unet.forward = MethodType(convert_outputs_to_fp32(unet.forward.__func__), unet)

    def offloaded(unet: Any) -> None:
        cpu_offload_with_hook(unet, execution_device=torch.device("cpu"))

    for wrap in (mixed, offloaded):
        first, second, plain = small("sd15"), small("sd15"), small("sd15")
        optimize(first.pipe, FuseQKV(), Attention("vanilla"), components=["unet"])
        wrap(first.pipe.unet)
        second.pipe.register_modules(unet=copy.deepcopy(first.pipe.unet))
        assert torch.equal(halved(second), halved(plain))


def test_what_accelerate_has_prepared_and_unwrapped_is_optimized_still() -> None:
    pipeline, unet = small("sd15"), small("sd15").denoiser
    pipeline.pipe.register_modules(unet=unet)
    before = state_of(pipeline.pipe)
    optimize(pipeline.pipe, FuseQKV(), components=["unet"])
    unet._original_forward = unet.forward
    unet.forward = MethodType(convert_outputs_to_fp32(unet.forward.__func__), unet)
    picture(pipeline)
    extract_model_from_parallel(unet, keep_fp32_wrapper=False)
    count = report(pipeline.pipe).lines[0].summary.counts["q_k_v"]
    picture(pipeline)
    assert report(pipeline.pipe).lines[0].summary.counts["q_k_v"] == 2 * count > 0
    restore(pipeline.pipe)
    assert not differences(before, state_of(pipeline.pipe))
