"""Optimized pipelines whose weights others move or cast in each call: accelerate, and diffusers' own hooks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate import cpu_offload, cpu_offload_with_hook
from accelerate.hooks import AlignDevicesHook, ModelHook, add_hook_to_module, remove_hook_from_module
from paceline import Attention, FuseQKV, Precision, QuantizeInt8, TokenMerging, optimize, report, restore
from paceline.core.errors import UnsupportedModel
from paceline.optimizers.hosts.diffusers.components import device_of
from random_pipelines import baseline, picture, small

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
