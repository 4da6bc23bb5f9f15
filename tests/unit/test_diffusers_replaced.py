"""What others do to an optimized component: other processors, training, copies, weights that move or are cast."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, cpu_offload_with_hook
from accelerate.hooks import AlignDevicesHook, ModelHook, add_hook_to_module, remove_hook_from_module
from accelerate.utils import convert_outputs_to_fp32, extract_model_from_parallel
from cases import often
from diffusers.models.attention_processor import AttnProcessor2_0
from paceline import (
    Attention,
    FuseQKV,
    Precision,
    QuantizeInt8,
    TokenMerging,
    optimize,
    report,
    restore,
)
from paceline.optimizers.core.errors import UnsupportedModel
from paceline.optimizers.in_diffusers.components import device_of
from random_pipelines import baseline, differences, picture, small, state_of

REPLACED: dict[str, Callable[[Any], None]] = {
    "set_attn_processor": lambda pipe: pipe.unet.set_attn_processor(AttnProcessor2_0()),
    "fuse_qkv_projections": lambda pipe: pipe.fuse_qkv_projections(vae=False),
}


@pytest.mark.parametrize("way", often(["set_attn_processor"], REPLACED))
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


BESIDE = {
    "attention": (Attention("vanilla"), "attn1", "partly"),
    "keys": (TokenMerging(ratio=0.5, method="kv_downsample", max_downsample=4), "attn1", "inactive"),
    "merged": (TokenMerging(ratio=0.5, method="merge", max_downsample=4), "attn1", "inactive"),
    "projections": (FuseQKV(), "to_v", "inactive"),
}


@pytest.mark.parametrize("name", often(["attention", "keys"], BESIDE))
def test_layers_that_other_code_computes_are_left_to_it_and_it_is_named(name: str) -> None:
    setting, layers, state = BESIDE[name]
    pictures = []
    for ours in (False, True):
        pipeline = small("sd15")
        before = picture(pipeline)
        if ours:
            optimize(pipeline.pipe, setting, components=["unet"])
        for path, layer in pipeline.denoiser.named_modules():
            if path.endswith(layers):
                layer.forward = lambda *args, plain=layer.forward, **options: plain(*args, **options) * 0.5
        pictures.append(picture(pipeline))
    torch.testing.assert_close(pictures[1], pictures[0], rtol=0, atol=0 if state == "inactive" else 1e-5)
    assert (pictures[0] - before).norm() > 0.01 * before.norm()
    summary = report(pipeline.pipe).lines[0].summary
    assert summary.state == state
    assert any("test_diffusers_replaced.py computes this layer itself" in line for line in summary.details)


@pytest.mark.parametrize(("settings", "rounding"), [(FuseQKV(), 1e-5), (QuantizeInt8(include="*"), 0.1)])
def test_a_lora_is_trained_through_what_is_optimized(settings: Any, rounding: float) -> None:
    from peft import LoraConfig

    unets = [small("sd15").denoiser, small("sd15").denoiser]
    grads = []
    for number, unet in enumerate(unets):
        unet.requires_grad_(False)
        torch.manual_seed(0)
        unet.add_adapter(LoraConfig(r=4, target_modules=["to_q", "to_k"], init_lora_weights="gaussian"))
        if number:
            optimize(unet, settings)
        text = torch.ones(1, 77, unet.config.cross_attention_dim, requires_grad=True)
        unet(torch.ones(1, 4, 16, 16), 10, text).sample.square().mean().backward()
        grads.append(torch.cat([one.grad.flatten() for one in (text, *unet.parameters()) if one.requires_grad]))
    assert (grads[1] - grads[0]).norm() <= rounding * grads[0].norm()
    assert report(unets[1]).lines[0].summary.state == "active"


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


INT8 = QuantizeInt8(include="*")
FEWER = TokenMerging(ratio=0.5, method="kv_downsample")


def titles(pipe: Any) -> list[str]:
    return [line.title for line in report(pipe).lines if line.component == "unet"]


def test_accelerate_offloads_below_ours() -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, FuseQKV(), FEWER)
    expected = picture(pipeline)
    add_hook_to_module(pipeline.pipe.unet, AlignDevicesHook("cpu", io_same_device=True))
    assert torch.equal(picture(pipeline), expected)
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), baseline("sd15"))
    optimize(pipeline.pipe, FuseQKV(), FEWER)
    assert torch.equal(picture(pipeline), expected)
    remove_hook_from_module(pipeline.pipe.unet)
    assert torch.equal(picture(pipeline), expected)


def test_weights_that_are_away_are_not_quantised() -> None:
    pipeline = small("sd15")
    cpu_offload(pipeline.pipe.unet, torch.device("cpu"))
    with pytest.raises(UnsupportedModel, match="not on a device between its calls"):
        optimize(pipeline.pipe, INT8)
    assert not report(pipeline.pipe).lines
    # A backend is tried out where the model computes, not where its weights wait.
    optimize(pipeline.pipe, Attention("sdpa_math"), FEWER, components=["unet"])
    assert set(titles(pipeline.pipe)) == {"Set Attention Processor", "Apply ToMe"}


def test_a_model_computes_where_it_is_brought_for_each_call() -> None:
    unet = small("sd15").denoiser
    cpu_offload_with_hook(unet, execution_device=torch.device("cuda", 0))  # what enable_model_cpu_offload does
    assert (unet.device.type, device_of(unet)) == ("cpu", torch.device("cuda", 0))


def test_a_vae_has_its_weights_before_they_are_joined() -> None:
    class Brings(ModelHook):
        """In the place of a move to another device."""

        def pre_forward(self, module: Any, *args: Any, **kwargs: Any) -> Any:
            module.double()
            return args, kwargs

    vae = small("sd15").pipe.vae
    add_hook_to_module(vae, Brings())
    latents = torch.zeros(1, 4, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        expected = vae.decode(latents).sample
        vae.float()
        optimize(vae, FuseQKV())
        assert torch.allclose(vae.decode(latents).sample, expected)


def test_layers_whose_weights_diffusers_casts_in_each_call() -> None:
    casts = {"storage_dtype": torch.float8_e4m3fn, "compute_dtype": torch.float32}
    plain, first, later = small("sd15"), small("sd15"), small("sd15")
    for pipeline in (plain, first):
        pipeline.denoiser.enable_layerwise_casting(**casts)
    expected = picture(plain)
    for setting, reason in ((FuseQKV(), "casts its weights in each call"), (Precision("bf16"), "enable_layerwise")):
        with pytest.raises(UnsupportedModel, match=reason):
            optimize(first.pipe, setting, components=["unet"])
    optimize(first.pipe, Attention("sdpa_math"), components=["unet"])
    assert torch.allclose(picture(first), expected, atol=1e-4)
    optimize(later.pipe, FuseQKV(), components=["unet"])
    later.denoiser.enable_layerwise_casting(**casts)
    assert torch.equal(picture(later), expected)


def test_int8_is_off_where_a_hook_has_wrapped_it_since() -> None:
    plain, pipeline = small("sd15"), small("sd15")
    optimize(pipeline.pipe, INT8)
    for one in (plain, pipeline):
        one.denoiser.enable_layerwise_casting(torch.float8_e4m3fn, torch.float32)
    expected = picture(plain)
    assert not torch.equal(picture(pipeline), expected)
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), expected)
