"""What others do to an optimized component: other attention processors, fused projections, training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers.models.attention_processor import AttnProcessor2_0
from paceline import Attention, FuseQKV, Precision, QuantizeInt8, TokenMerging, optimize, report, restore
from random_pipelines import distance, picture, small

KEYS, MERGED = TokenMerging(ratio=0.5, method="kv_downsample"), TokenMerging(ratio=0.5, method="merge")


def fuse(pipe: Any) -> None:
    pipe.fuse_qkv_projections(vae=False)


REPLACED: dict[str, Callable[[Any], None]] = {
    "set_attn_processor": lambda pipe: pipe.unet.set_attn_processor(AttnProcessor2_0()),
    "fuse_qkv_projections": fuse,
}


@pytest.mark.parametrize("way", REPLACED)
def test_a_replaced_processor_is_left_alone_and_not_counted_as_ours(way: str) -> None:
    plain, pipeline = small("sd15"), small("sd15")
    optimize(pipeline.pipe, Attention("vanilla"), components=["unet"])
    picture(pipeline)
    counted = report(pipeline.pipe).lines[0].summary.counts
    assert counted["fallbacks"] == 0
    for one in (plain, pipeline):
        REPLACED[way](one.pipe)
    now = {name: id(one) for name, one in pipeline.denoiser.attn_processors.items()}
    assert torch.equal(picture(pipeline), picture(plain))
    summary = report(pipeline.pipe).lines[0].summary
    assert summary.counts == {"calls": counted["calls"], "fallbacks": counted["calls"]}
    assert any("other code has set" in line for line in summary.details)
    restore(pipeline.pipe)
    assert {name: id(one) for name, one in pipeline.denoiser.attn_processors.items()} == now
    optimize(pipeline.pipe, Attention("vanilla"), components=["unet"])
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), picture(plain))


def test_diffusers_fuses_the_floating_point_weights_of_int8_layers() -> None:
    plain, pipeline = small("sd15"), small("sd15")
    optimize(pipeline.pipe, QuantizeInt8(include="*"), components=["unet"])
    for one in (plain, pipeline):
        fuse(one.pipe)
    assert distance(picture(pipeline), picture(plain)) < 0.1
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), picture(plain))


def test_what_diffusers_fused_in_few_bits_goes_back_with_the_rest() -> None:
    plain, pipeline = small("sd15"), small("sd15")
    optimize(pipeline.pipe, Precision("bf16"))
    for one in (plain, pipeline):
        fuse(one.pipe)
    assert distance(picture(pipeline), picture(plain)) < 0.1
    restore(pipeline.pipe)
    assert distance(picture(pipeline), picture(plain)) < 0.1
    assert {tensor.dtype for tensor in pipeline.denoiser.parameters()} == {torch.float32}


def test_a_backend_that_somebody_has_set_in_the_dispatcher_is_theirs() -> None:
    pipeline, plain = small("flux"), small("flux")
    optimize(pipeline.pipe, Attention("sdpa"), components=["transformer"])
    picture(pipeline)
    before = report(pipeline.pipe).lines[0].summary.counts["calls"]
    for one in (pipeline, plain):
        for processor in one.denoiser.attn_processors.values():
            processor._attention_backend = "_native_math"
    assert torch.equal(picture(pipeline), picture(plain))
    assert report(pipeline.pipe).lines[0].summary.counts == {"calls": before, "fallbacks": before}


def test_a_lora_is_trained_through_fused_projections() -> None:
    from peft import LoraConfig

    unets = [small("sd15").denoiser, small("sd15").denoiser]
    grads = []
    for number, unet in enumerate(unets):
        unet.requires_grad_(False)
        torch.manual_seed(0)
        unet.add_adapter(LoraConfig(r=4, target_modules=["to_q", "to_k"], init_lora_weights="gaussian"))
        if number:
            optimize(unet, FuseQKV())
        text = torch.ones(1, 77, unet.config.cross_attention_dim)
        unet(torch.ones(1, 4, 16, 16), 10, text).sample.square().mean().backward()
        grads.append([one.grad for one in unet.parameters() if one.requires_grad])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*grads, strict=True)) and grads[0]
    assert report(unets[1]).lines[0].summary.state == "active"
