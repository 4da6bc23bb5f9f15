"""What others wrap, replace or reparametrize between two calls of an optimized pipeline."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from accelerate.hooks import remove_hook_from_module
from cases import often
from paceline import Attention, FuseQKV, Precision, optimize, report, restore
from paceline.optimizers.qkv_fusion import SLOWER
from random_pipelines import baseline, differences, distance, picture, small, state_of
from torch.nn.utils import prune


def own_wrapper(unet: Any) -> Callable[[], None]:
    below = unet.forward
    unet.forward = lambda *args, **kwargs: below(*args, **kwargs)
    return lambda: setattr(unet, "forward", below)


def hook_of_diffusers(unet: Any) -> Callable[[], None]:
    from diffusers.hooks import HookRegistry
    from diffusers.hooks import ModelHook as Hook

    registry = HookRegistry.check_if_exists_or_initialize(unet)
    registry.register_hook(Hook(), "own")
    return lambda: registry.remove_hook("own") or delattr(unet, "_diffusers_hook")


WRAPPED = product((own_wrapper, hook_of_diffusers), (False, True))


@pytest.mark.parametrize(
    ("wrap", "between"), often([(own_wrapper, True), (hook_of_diffusers, False)], WRAPPED, several=True)
)
def test_what_is_wrapped_between_two_calls_of_optimize(
    wrap: Callable[[Any], Callable[[], None]], between: bool
) -> None:
    pipeline, unet = small("sd15"), small("sd15").denoiser
    pipeline.pipe.register_modules(unet=unet)
    before = state_of(pipeline.pipe)
    optimize(pipeline.pipe, Attention("sdpa_math"), components=["unet"])
    take_off = wrap(unet)
    if between:
        restore(pipeline.pipe)
    optimize(pipeline.pipe, FuseQKV(), components=["unet"])
    fused = picture(pipeline)
    calls = report(pipeline.pipe).lines[0].summary.counts["q_k_v"]
    assert torch.allclose(fused, baseline("sd15"), atol=1e-4)
    take_off()
    assert torch.equal(picture(pipeline), fused)
    assert report(pipeline.pipe).lines[0].summary.counts["q_k_v"] == 2 * calls
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), baseline("sd15")) and not differences(before, state_of(pipeline.pipe))


def test_what_peft_has_wrapped_since_is_told_and_restored() -> None:
    from peft import LoraConfig, get_peft_model

    pipeline = small("sd15")
    optimize(pipeline.pipe, FuseQKV(), components=["unet"])
    pipeline.pipe.unet = get_peft_model(pipeline.pipe.unet, LoraConfig(r=4, target_modules=["to_q"]))
    picture(pipeline)
    assert report(pipeline.pipe).lines[0].summary.counts["q_k_v"] > 0
    restore(pipeline.pipe)
    assert not report(pipeline.pipe).lines and torch.equal(picture(pipeline), baseline("sd15"))


def test_a_part_that_was_taken_out_is_restored_too() -> None:
    pipeline = small("sd15")
    first = pipeline.pipe.unet
    optimize(pipeline.pipe, FuseQKV(), components=["unet"])
    pipeline.pipe.unet = small("sd15").denoiser
    restore(pipeline.pipe)
    pipeline.pipe.unet = first
    assert torch.equal(picture(pipeline), baseline("sd15"))


def test_layers_whose_weights_are_replaced_after_precision() -> None:
    casts = {"storage_dtype": torch.float8_e4m3fn, "compute_dtype": torch.bfloat16}
    plain, cast, loaded = small("sd15"), small("sd15"), small("sd15")
    for one in (cast, loaded):
        optimize(one.pipe, Precision("bf16"))
    other = {key: value * 0.9 for key, value in plain.denoiser.state_dict().items()}
    loaded.denoiser.load_state_dict(other, assign=True)
    plain.denoiser.load_state_dict(other)
    assert distance(picture(loaded), picture(plain)) <= 0.05 and loaded.denoiser.dtype == torch.bfloat16
    restore(loaded.pipe)
    assert torch.equal(picture(loaded), picture(plain))
    twin = small("sd15")
    twin.pipe.to(torch.bfloat16)
    for one in (twin, cast):
        one.denoiser.enable_layerwise_casting(**casts)
    assert torch.equal(picture(cast), picture(twin).float())


ORDERS = ("optimize hooks off restore", "optimize hooks restore off", "hooks optimize off restore")


@pytest.mark.parametrize("order", often(ORDERS[1:], ORDERS))
def test_precision_and_sequential_offloading_give_back_the_weights_that_were_loaded(order: str) -> None:
    pipe = small("sd15").pipe
    loaded = {name: one.clone() for name, one in pipe.unet.state_dict().items()}
    steps: dict[str, Callable[[], Any]] = {
        "optimize": lambda: optimize(pipe, Precision("bf16"), components=["unet"]),
        "hooks": lambda: cpu_offload(pipe.unet, torch.device("cpu")),
        "off": lambda: remove_hook_from_module(pipe.unet, recurse=True),
        "restore": lambda: restore(pipe),
    }
    for step in order.split():
        steps[step]()
    assert all(torch.equal(loaded[name], one) for name, one in pipe.unet.state_dict().items())


@pytest.mark.parametrize("first", ["prune", "optimize"])
def test_fused_projections_leave_alone_what_others_compute(first: str) -> None:
    """Pruned weights, and projections whose ``forward`` is somebody else's."""

    def changed(unet: Any) -> None:
        one, other = (unet.down_blocks[number].attentions[0].transformer_blocks[0].attn1 for number in (0, 1))
        prune.l1_unstructured(one.to_q, "weight", 0.3)
        below = other.to_v.forward
        other.to_v.forward = lambda x: below(x) * 0.5

    plain, pipeline = small("sd15"), small("sd15")
    changed(plain.denoiser)
    if first == "prune":
        changed(pipeline.denoiser)
    optimize(pipeline.pipe, FuseQKV(), components=["unet"])
    if first == "optimize":
        picture(pipeline)
        changed(pipeline.denoiser)
    assert torch.allclose(picture(pipeline), picture(plain), atol=1e-4)
    said = str(report(pipeline.pipe))
    assert "pruning or another" in said and "test_diffusers_since.py computes this layer itself" in said


def test_projections_that_diffusers_has_fused_are_said_to_be() -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, FuseQKV(), components=["unet"])
    pipeline.pipe.fuse_qkv_projections(vae=False)
    picture(pipeline)
    assert "diffusers has fused them itself" in str(report(pipeline.pipe))


def test_attention_of_ours_is_off_where_a_backend_was_set_since() -> None:
    pipeline, plain = small("flux"), small("flux")
    optimize(pipeline.pipe, Attention("vanilla"), components=["transformer"])
    for one in (pipeline, plain):
        one.denoiser.set_attention_backend("native")
    assert torch.equal(picture(pipeline), picture(plain))
    (line,) = report(pipeline.pipe).lines
    assert line.summary.counts["calls"] == 0 < line.summary.counts["fallbacks"]
    assert "other code has set" in str(line.summary.details)


def test_attention_is_not_fused_where_that_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SLOWER, "cpu", "it is slower here")
    pipeline = small("sd15")
    optimize(pipeline.pipe, FuseQKV(), components=["unet"])
    assert torch.equal(picture(pipeline), baseline("sd15"))
    assert "not active: it is slower here" in str(report(pipeline.pipe))
