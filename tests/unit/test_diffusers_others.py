"""What others do to an optimized pipeline is done as to a plain one, is said, and stays when ours is taken off."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from types import MethodType
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, cpu_offload_with_hook
from accelerate.hooks import AlignDevicesHook, ModelHook, add_hook_to_module, remove_hook_from_module
from accelerate.utils import convert_outputs_to_fp32, extract_model_from_parallel
from cases import often
from diffusers.hooks import HookRegistry
from diffusers.models.attention_processor import AttnProcessor2_0
from paceline import Attention, FuseQKV, Precision, QuantizeInt8, TokenMerging, optimize, report, restore
from paceline.optimizers.core.errors import UnsupportedModel
from paceline.optimizers.in_diffusers.components import device_of
from paceline.optimizers.qkv_fusion import SLOWER
from peft import LoraConfig, get_peft_model
from random_pipelines import baseline, differences, distance, picture, small, state_of
from torch.nn.utils import prune

VANILLA, FUSED, INT8, HALF = Attention("vanilla"), FuseQKV(), QuantizeInt8(include="*"), Precision("bf16")
FEWER = TokenMerging(ratio=0.5, method="kv_downsample", max_downsample=4)
MERGED = TokenMerging(ratio=0.5, method="merge", max_downsample=4)
EXACT = 2e-5
CASTS = {"storage_dtype": torch.float8_e4m3fn, "compute_dtype": torch.float32}


def other_processors(pipe: Any) -> None:
    pipe.unet.set_attn_processor(AttnProcessor2_0())


def fused_by_diffusers(pipe: Any) -> None:
    pipe.fuse_qkv_projections(vae=False)


def other_backend(pipe: Any) -> None:
    pipe.transformer.set_attention_backend("native")


def other_layers(names: str) -> Callable[[Any], None]:
    def change(pipe: Any) -> None:
        for path, layer in pipe.unet.named_modules():
            if path.endswith(names):
                layer.forward = lambda *args, plain=layer.forward, **options: plain(*args, **options) * 0.5

    return change


def pruned(pipe: Any) -> None:
    """Masked weights of one layer, and another whose ``forward`` is somebody else's."""
    one, other = (pipe.unet.down_blocks[number].attentions[0].transformer_blocks[0].attn1 for number in (0, 1))
    prune.l1_unstructured(one.to_q, "weight", 0.3)
    below = other.to_v.forward
    other.to_v.forward = lambda x: below(x) * 0.5


def offloaded(pipe: Any) -> None:
    hook_of_accelerate(pipe.unet)


def adapted(pipe: Any) -> None:
    pipe.unet = get_peft_model(pipe.unet, LoraConfig(r=4, target_modules=["to_q"]))


def cast(pipe: Any) -> None:
    pipe.unet.enable_layerwise_casting(**CASTS)


def loaded(pipe: Any) -> None:
    weights = {name: value * 0.9 for name, value in small("sd15").denoiser.state_dict().items()}
    pipe.unet.load_state_dict(weights, assign=True)


THEIRS = "test_diffusers_others.py computes this layer itself"
DONE: list[tuple[Any, Callable[[Any], None], float, str]] = [
    (VANILLA, other_processors, 0, "other code has set"),
    (VANILLA, fused_by_diffusers, 0, "other code has set"),
    (VANILLA, other_backend, 0, "other code has set"),
    (VANILLA, other_layers("attn1"), EXACT, THEIRS),
    (FEWER, other_layers("attn1"), 0, THEIRS),
    (MERGED, other_layers("attn1"), 0, THEIRS),
    (FUSED, other_layers("to_v"), 0, THEIRS),
    (FUSED, pruned, EXACT, "pruning or another"),
    (FUSED, fused_by_diffusers, 0, "no attention layer was called with the same tokens"),
    (FUSED, offloaded, EXACT, "active"),
    (FUSED, adapted, EXACT, "active"),
    (FUSED, cast, 0, "casts its weights in each call"),
    (INT8, cast, 0.2, ""),
    (HALF, loaded, 0.05, "active"),
]
"""What is on the denoiser, what others do to it, how far the picture may be from that of a plain one, what is said."""


@pytest.mark.parametrize(
    ("setting", "change", "far", "said"), often([DONE[0], *DONE[2:5], *DONE[7:11], *DONE[12:]], DONE, several=True)
)
def test_it_is_done_as_to_a_plain_pipeline(setting: Any, change: Callable[[Any], None], far: float, said: str) -> None:
    name = "flux" if change is other_backend else "sd15"
    plain, pipeline = small(name), small(name)
    part = "transformer" if name == "flux" else "unet"
    optimize(pipeline.pipe, setting, components=None if setting is HALF else [part])
    picture(pipeline)
    for one in (plain, pipeline):
        change(one.pipe)
    found, expected = picture(pipeline), picture(plain)
    assert distance(found, expected) <= far and (far or torch.equal(found, expected))
    assert said in str(report(pipeline.pipe))
    assert change is not loaded or pipeline.denoiser.dtype == torch.bfloat16
    theirs = {path: id(one.processor) for path, one in pipeline.denoiser.named_modules() if hasattr(one, "processor")}
    restore(pipeline.pipe)
    if "other" in said:
        now = {path: id(one.processor) for path, one in pipeline.denoiser.named_modules() if hasattr(one, "processor")}
        assert now == theirs
    assert torch.equal(picture(pipeline), expected) and not report(pipeline.pipe).lines


def own_wrapper(unet: Any) -> Callable[[], None]:
    below = unet.forward
    unet.forward = lambda *args, **kwargs: below(*args, **kwargs)
    return lambda: setattr(unet, "forward", below)


def hook_of_diffusers(unet: Any) -> Callable[[], None]:
    from diffusers.hooks import ModelHook as Hook

    registry = HookRegistry.check_if_exists_or_initialize(unet)
    registry.register_hook(Hook(), "own")
    return lambda: registry.remove_hook("own") or delattr(unet, "_diffusers_hook")


def hook_of_accelerate(unet: Any) -> Callable[[], None]:
    add_hook_to_module(unet, AlignDevicesHook("cpu", io_same_device=True))
    return lambda: remove_hook_from_module(unet) and None


def prepared(unet: Any) -> Callable[[], None]:
    """As ``Accelerator.prepare`` does it."""
    unet._original_forward = unet.forward
    unet.forward = MethodType(convert_outputs_to_fp32(unet.forward.__func__), unet)
    return lambda: extract_model_from_parallel(unet, keep_fp32_wrapper=False) and None


MEANWHILE = ("", "optimized anew", "restored and optimized")
WRAPPED = [(prepared, ""), *product((own_wrapper, hook_of_diffusers, hook_of_accelerate), MEANWHILE)]
OFTEN = [(prepared, ""), (own_wrapper, MEANWHILE[2]), (hook_of_diffusers, ""), (hook_of_accelerate, MEANWHILE[2])]


@pytest.mark.parametrize(("wrap", "meanwhile"), often(OFTEN, WRAPPED, several=True))
def test_what_is_wrapped_and_taken_off_again_leaves_ours_on(wrap: Callable[[Any], Any], meanwhile: str) -> None:
    pipeline, unet = small("sd15"), small("sd15").denoiser
    pipeline.pipe.register_modules(unet=unet)
    before = state_of(pipeline.pipe)
    optimize(pipeline.pipe, Attention("sdpa_math") if meanwhile else FUSED, components=["unet"])
    take_off = wrap(unet)
    if meanwhile.startswith("restored"):
        restore(pipeline.pipe)
    if meanwhile:
        optimize(pipeline.pipe, FUSED, components=["unet"])
    fused = picture(pipeline)
    calls = report(pipeline.pipe).lines[0].summary.counts["q_k_v"]
    assert torch.allclose(fused, baseline("sd15"), atol=1e-4)
    take_off()
    assert torch.equal(picture(pipeline), fused)
    assert report(pipeline.pipe).lines[0].summary.counts["q_k_v"] == 2 * calls > 0
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), baseline("sd15")) and not differences(before, state_of(pipeline.pipe))


@pytest.mark.parametrize(("settings", "rounding"), [(FUSED, 1e-5), (INT8, 0.1)])
def test_a_lora_is_trained_through_what_is_optimized(settings: Any, rounding: float) -> None:
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


def test_a_copy_keeps_what_was_merged_into_weights_of_another_precision() -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, HALF)
    weight = pipeline.pipe.unet.conv_in.weight
    with torch.no_grad():
        weight.mul_(2)
    copied = copy.deepcopy(pipeline.pipe.unet).conv_in.weight
    assert copied.dtype == torch.float32 and torch.equal(copied, weight.float())


@pytest.mark.parametrize("wrap", [prepared, lambda unet: cpu_offload_with_hook(unet, torch.device("cpu"))])
def test_a_copy_of_what_accelerate_has_wrapped_since_is_plain_and_of_its_own(wrap: Callable[[Any], Any]) -> None:
    def halved(pipeline: Any) -> torch.Tensor:
        """What a LoRA, an average or training does to a copy."""
        with torch.no_grad():
            for parameter in pipeline.pipe.unet.parameters():
                parameter.mul_(0.5)
        return picture(pipeline)

    first, second, plain = small("sd15"), small("sd15"), small("sd15")
    optimize(first.pipe, FUSED, VANILLA, components=["unet"])
    wrap(first.pipe.unet)
    second.pipe.register_modules(unet=copy.deepcopy(first.pipe.unet))
    assert torch.equal(halved(second), halved(plain))


def test_a_part_that_was_taken_out_is_restored_too() -> None:
    pipeline = small("sd15")
    first = pipeline.pipe.unet
    optimize(pipeline.pipe, FUSED, components=["unet"])
    pipeline.pipe.unet = small("sd15").denoiser
    restore(pipeline.pipe)
    pipeline.pipe.unet = first
    assert torch.equal(picture(pipeline), baseline("sd15"))


def test_weights_that_are_away_are_not_quantised() -> None:
    pipeline = small("sd15")
    cpu_offload(pipeline.pipe.unet, torch.device("cpu"))
    with pytest.raises(UnsupportedModel, match="not on a device between its calls"):
        optimize(pipeline.pipe, INT8)
    assert not report(pipeline.pipe).lines
    # A backend is tried out where the model computes, not where its weights wait.
    optimize(pipeline.pipe, Attention("sdpa_math"), FEWER, components=["unet"])
    assert {line.title for line in report(pipeline.pipe).lines} == {"Set Attention Processor", "Apply ToMe"}
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
        optimize(vae, FUSED)
        assert torch.allclose(vae.decode(latents).sample, expected)


def test_weights_that_diffusers_casts_in_each_call_are_refused_or_cast_in_another_precision() -> None:
    plain, first, later, twin = (small("sd15") for _ in range(4))
    for pipeline in (plain, first):
        cast(pipeline.pipe)
    for setting, reason in ((FUSED, "casts its weights in each call"), (HALF, "enable_layerwise")):
        with pytest.raises(UnsupportedModel, match=reason):
            optimize(first.pipe, setting, components=["unet"])
    optimize(first.pipe, Attention("sdpa_math"), components=["unet"])
    assert torch.allclose(picture(first), picture(plain), atol=1e-4)
    optimize(later.pipe, HALF)
    twin.pipe.to(torch.bfloat16)
    for one in (twin, later):
        one.denoiser.enable_layerwise_casting(**CASTS | {"compute_dtype": torch.bfloat16})
    assert torch.equal(picture(later), picture(twin).float())


ORDERS = ("optimize hooks off restore", "optimize hooks restore off", "hooks optimize off restore")


@pytest.mark.parametrize("order", often(ORDERS[1:], ORDERS))
def test_precision_and_sequential_offloading_give_back_the_weights_that_were_loaded(order: str) -> None:
    pipe = small("sd15").pipe
    before = {name: one.clone() for name, one in pipe.unet.state_dict().items()}
    steps: dict[str, Callable[[], Any]] = {
        "optimize": lambda: optimize(pipe, HALF, components=["unet"]),
        "hooks": lambda: cpu_offload(pipe.unet, torch.device("cpu")),
        "off": lambda: remove_hook_from_module(pipe.unet, recurse=True),
        "restore": lambda: restore(pipe),
    }
    for step in order.split():
        steps[step]()
    assert all(torch.equal(before[name], one) for name, one in pipe.unet.state_dict().items())


def test_attention_is_not_fused_where_that_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SLOWER, "cpu", "it is slower here")
    pipeline = small("sd15")
    optimize(pipeline.pipe, FUSED, components=["unet"])
    assert torch.equal(picture(pipeline), baseline("sd15"))
    assert "not active: it is slower here" in str(report(pipeline.pipe))
