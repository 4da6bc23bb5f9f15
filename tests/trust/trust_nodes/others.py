"""What packs of other people do to a MODEL and to its sampling, each in a few lines of our own."""

from __future__ import annotations

import copy
import json
from typing import Any

import torch
from comfy_host import checkpoints
from comfy_host.made_nodes import node
from torch import Tensor
from torch.nn import Linear, Module

_SEED = ("INT", {"default": 0, "min": 0, "max": 2**32})


@node("TrustRising", "SIGMAS", sigmas=("SIGMAS",))
def rising(sigmas: Tensor) -> tuple[Tensor]:
    """A schedule that goes back to its middle when it is near its end, as restart sampling does."""
    return (torch.cat([sigmas[:-1], sigmas[len(sigmas) // 2 :]]),)


@node("TrustCopiedOptions", "MODEL", model=("MODEL",))
def copied_options(model: Any) -> tuple[Any]:
    """Guidance by a second pass, with a deep copy of the options, in which one layer of attention is left out."""
    import comfy.samplers
    from comfy.model_patcher import set_model_options_patch_replace

    def before_guidance(args: Any) -> Any:
        options = copy.deepcopy(args["model_options"])
        options = set_model_options_patch_replace(options, lambda q, k, v, extra, mask=None: v, "attn1", "middle", 0)
        given = args["model"], [args["conds"][0]], args["input"], args["timestep"], options
        (other,) = comfy.samplers.calc_cond_batch(*given)
        args["conds_out"][0] += 0.5 * (args["conds_out"][0] - other)
        return args["conds_out"]

    clone = model.clone()
    clone.set_model_sampler_pre_cfg_function(before_guidance)
    return (clone,)


@node("TrustCouple", "MODEL", model=("MODEL",))
def couple(model: Any) -> tuple[Any]:
    """Two texts for one picture: the queries of the positive pass are repeated, and the outputs are blended."""

    def parts(options: Any) -> list[int]:
        return [2 if kind == 0 else 1 for kind in options["cond_or_uncond"]]

    def before(q: Tensor, k: Tensor, v: Tensor, options: Any) -> tuple[Tensor, Tensor, Tensor]:
        repeats = parts(options)
        pairs = list(zip(repeats, q.chunk(len(repeats)), k.chunk(len(repeats)), strict=True))
        keys = torch.cat([torch.cat([one, one.flip(2)]) if count > 1 else one for count, _, one in pairs])
        return torch.cat([one.repeat(count, 1, 1) for count, one, _ in pairs]), keys, keys

    def after(out: Tensor, options: Any) -> Tensor:
        repeats = parts(options)
        outputs = out.split([count * len(out) // sum(repeats) for count in repeats])
        pairs = zip(repeats, outputs, strict=True)
        return torch.cat([one.unflatten(0, (count, -1)).mean(0) for count, one in pairs])

    clone = model.clone()
    clone.set_model_attn2_patch(before)
    clone.set_model_attn2_output_patch(after)
    return (clone,)


@node("TrustSeveralCalls", "MODEL", model=("MODEL",), windows=("BOOLEAN", {"default": False}))
def several_calls(model: Any, windows: bool) -> tuple[Any]:
    """An evaluation in several calls: its passes one by one, or two halves of the picture that overlap."""

    def one_by_one(apply: Any, given: Any) -> Any:
        passes, x, rest = given["cond_or_uncond"], given["input"], given["c"]
        parts = [slice(part * len(x) // len(passes), (part + 1) * len(x) // len(passes)) for part in range(len(passes))]

        def of(value: Any, part: slice) -> Any:
            return value[part] if isinstance(value, Tensor) and len(value) == len(x) else value

        def options(kind: int) -> Any:
            return rest["transformer_options"] | {"cond_or_uncond": [kind]}

        return torch.cat([
            apply(x[part], of(given["timestep"], part),
                  **{key: of(value, part) for key, value in rest.items()} | {"transformer_options": options(kind)})
            for kind, part in zip(passes, parts, strict=True)
        ])  # fmt: skip

    def halves(apply: Any, given: Any) -> Any:
        x, rows = given["input"], given["input"].shape[-2]
        size = min(rows, rows // 4 * 2 + 4)
        result, counts = torch.zeros_like(x), torch.zeros_like(x)
        for begin in (0, rows - size):
            part = (..., slice(begin, begin + size), slice(None))
            result[part] += apply(x[part], given["timestep"], **given["c"])
            counts[part] += 1
        return result / counts

    clone = model.clone()
    clone.set_model_unet_function_wrapper(halves if windows else one_by_one)
    return (clone,)


@node("TrustHeldTokens", "MODEL", model=("MODEL",))
def held_tokens(model: Any) -> tuple[Any]:
    """A patch that holds tokens of its own, in the dtype that the MODEL has when the node runs."""
    dtype, held = model.model_dtype(), {}

    def before(q: Tensor, k: Tensor, v: Tensor, options: Any) -> tuple[Tensor, Tensor, Tensor]:
        size = k.shape[-1]
        if size not in held:
            held[size] = torch.randn(1, 4, size, generator=torch.Generator().manual_seed(5)).to(dtype)
        tokens = held[size].to(k.device).expand(len(k), -1, -1)
        return q, torch.cat([k, tokens], 1), torch.cat([v, tokens], 1)

    clone = model.clone()
    clone.set_model_attn2_patch(before)
    return (clone,)


@node("TrustCache", "MODEL", model=("MODEL",))
def cache(model: Any) -> tuple[Any]:
    """A cache without any mark: every third call of the same passes gets the answer of the one before."""
    from comfy.patcher_extension import WrappersMP

    kept: dict[Any, list[Any]] = {}

    def around(executor: Any, x: Any, timestep: Tensor, *args: Any, **given: Any) -> Any:
        options = next(one for one in (*args, *given.values()) if isinstance(one, dict) and "cond_or_uncond" in one)
        now, key = float(timestep.max()), (tuple(options["cond_or_uncond"]), tuple(x.shape))
        before, number, result = kept.get(key, (None, 0, None))
        number = 0 if before is None or now >= before else number + 1
        if number % 3 != 2:
            result = executor(x, timestep, *args, **given)
        kept[key] = [now, number, result]
        return result.clone()

    clone = model.clone()
    clone.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "trust_cache", around)
    return (clone,)


@node("TrustLayers", "MODEL", model=("MODEL",))
def layers(model: Any) -> tuple[Any]:
    """A layer of attention whose ``forward`` is the pack's, as regional prompts have it."""
    clone = model.clone()
    for name, layer in model.model.diffusion_model.named_modules():
        if name.endswith("attn1"):

            def forward(x: Tensor, *args: Any, layer: Any = layer, **options: Any) -> Any:
                return type(layer).forward(layer, x * 0.9, *args, **options)

            clone.add_object_patch(f"diffusion_model.{name}.forward", forward)
            break
    return (clone,)


@node("TrustControlLora", "CONTROL_NET", copy=_SEED)
def control_lora(copy: int) -> tuple[Any]:
    """A Control-LoRA for the UNet ``sd15``: it reads the weights of the MODEL that it is sampled with."""
    import comfy.controlnet

    unet = checkpoints.SD15_CONFIG | {"model_channels": 32, "context_dim": 48}
    own = checkpoints.tiny_sd15(0, width=32, context=48).model.diffusion_model.state_dict()
    generator, weights = torch.Generator().manual_seed(3), {}
    for key, value in checkpoints.fitting_controlnet(unet).control_model.state_dict().items():
        if key not in own:
            weights[key] = value
        elif value.ndim >= 2:
            stem = key.removesuffix(".weight")
            weights[f"{stem}.up"] = torch.randn(len(value), 4, generator=generator) * 0.02
            weights[f"{stem}.down"] = torch.randn(4, value[0].numel(), generator=generator) * 0.02
    return (comfy.controlnet.ControlLora(weights),)


def from_int8_file(seed: int) -> Any:
    """A UNet whose layers of attention are as ComfyUI has them from a file in int8."""
    import comfy.ops

    model = checkpoints.tiny_sd15(seed, width=32, context=48)
    network: Module = model.model.diffusion_model
    kind = comfy.ops.mixed_precision_ops({}, torch.float32).Linear
    for name, layer in list(network.named_modules()):
        if not isinstance(layer, Linear) or "attn" not in name:
            continue
        scale = layer.weight.detach().abs().amax(1, keepdim=True) / 127
        state = {"weight": (layer.weight.detach() / scale).round().to(torch.int8), "weight_scale": scale}
        state["comfy_quant"] = torch.tensor(list(json.dumps({"format": "int8_tensorwise"}).encode()), dtype=torch.uint8)
        state |= {} if layer.bias is None else {"bias": layer.bias.detach()}
        made = kind(layer.in_features, layer.out_features, bias=layer.bias is not None, dtype=torch.float32)
        made.load_state_dict(state, strict=False)
        parent, _, attribute = name.rpartition(".")
        setattr(network.get_submodule(parent), attribute, made.requires_grad_(False))
    return model
