"""Read from a MODEL which linear layers could be in int8, and how many tokens each is given.

The latter by running a second model that nobody else has (see ``weight_clone``), so that hooks on its layers disturb
nobody. Without a prompt it is made of ``meta`` tensors, in no time and without memory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import Linear, Module

from .....core.calls import Function
from .....core.errors import InvalidSetting, UnsupportedModel
from ....families import find_family
from ....quantization.layers import Layer
from ..model import ModelTarget, describe_model, is_unet
from ..protocols import Conditioning, ModelPatcher
from ..weight_clone import second_module
from ..weight_swap import on_second_model

KEPT_TOKENS = 128
"""Tokens of each layer that are kept for measuring its error."""


def linear_layers(patcher: ModelPatcher, tokens: Mapping[str, int]) -> list[tuple[Layer, Linear]]:
    """Return the linear layers of a MODEL's network with their modules; ``tokens``: rows each is given, where known.

    Its weights must be those of the file (see ``weight_swap.original``). Raises `UnsupportedModel` if the network has
    none, or is quantised in another format already.
    """
    family = find_family(patcher.model.diffusion_model)
    found: list[tuple[Layer, Linear]] = []
    other_formats = set()
    for name, module in patcher.model.diffusion_model.named_modules():
        weight = getattr(module, "weight", None)
        if (other_format := getattr(weight, "_layout_cls", None)) is not None:
            other_formats.add(str(other_format))
        if isinstance(module, Linear) and isinstance(weight, Tensor) and weight.ndim == 2:
            found.append((Layer.of(name, weight, tokens.get(name), family), module))
    if other_formats:
        raise UnsupportedModel(
            f"This {describe_model(patcher)} comes from a file that is quantised already ({', '.join(other_formats)}).",
            "Load the full-precision file (fp16, bf16 or fp32) to quantise it to int8.",
        )
    if not found:
        raise UnsupportedModel(
            f"The network of this {describe_model(patcher)} has no linear layers that could be in int8.",
            "Remove the node for this model.",
        )
    return found


@dataclass
class Observations:
    """What was seen: rows per call by layer name, and some of the rows themselves after a real pass."""

    tokens: dict[str, int] = field(default_factory=dict)
    samples: dict[str, Tensor] = field(default_factory=dict)
    source: str = "an image of 1024 x 1024, estimated"


def observe(patcher: ModelPatcher, conditioning: Conditioning | None, latent: Tensor | None) -> Observations:
    """Return the tokens that the layers of a MODEL, with its LoRAs, are given.

    ``conditioning``: for one real sampling step; None to look at shapes only. ``latent``: ``[batch, channels, height,
    width]``, for its size; None for the size that a UNet was trained for. Raises `InvalidSetting` for a conditioning
    without a latent.
    """
    if conditioning is None:
        typical = (128, 128) if getattr(patcher.model, "adm_channels", 0) else (64, 64)
        return _observe_shapes(patcher, typical if latent is None else (latent.shape[-2], latent.shape[-1]))
    if latent is None:
        raise InvalidSetting(
            "A conditioning is connected without a latent, so the size to calibrate for is not known.",
            "Connect the latent that will be sampled too, or neither.",
        )
    return _observe_run(patcher, conditioning, latent)


def _watch(network: Module, seen: Observations, samples: bool) -> None:
    def watch(name: str, module: Module) -> None:
        def hook(_: Module, args: tuple[Tensor, ...]) -> None:
            rows = args[0].reshape(-1, args[0].shape[-1])
            seen.tokens[name] = max(len(rows), seen.tokens.get(name, 0))
            if samples and name not in seen.samples:
                seen.samples[name] = rows[:: max(1, len(rows) // KEPT_TOKENS)][:KEPT_TOKENS].to("cpu", torch.float32)

        module.register_forward_pre_hook(hook)

    for name, module in network.named_modules():
        if isinstance(module, Linear):
            watch(name, module)


def _observe_shapes(patcher: ModelPatcher, size: tuple[int, int]) -> Observations:
    """Return how many tokens each layer of a UNet is given for a latent of ``size``, with guidance (batch of two).

    For other families, and where shapes alone cannot run through the network, nothing is seen.
    """
    if not is_unet(patcher):
        return Observations()
    seen = Observations(source=f"a latent of {size[1]} x {size[0]}")
    base = patcher.model
    network = second_module(base.diffusion_model, lambda name, tensor: tensor.to("meta"))
    _watch(network, seen, samples=False)
    config = base.model_config.unet_config
    dtype = base.get_dtype_inference()

    def shape(*sizes: int) -> Tensor:
        return torch.empty(*sizes, device="meta", dtype=dtype)

    inputs = {
        "x": shape(2, config["in_channels"], *size),
        "timesteps": torch.empty(2, device="meta"),
        "context": shape(2, 77, config["context_dim"]),
        "y": shape(2, base.adm_channels) if base.adm_channels else None,
        "transformer_options": {"optimized_attention_override": _shape_of_attention},
    }
    try:
        with torch.inference_mode():
            network(**inputs)
    except (RuntimeError, NotImplementedError, TypeError, KeyError, ValueError) as error:
        logging.info("Paceline: token counts are estimated, shapes alone do not run through this UNet: %s", error)
        return Observations()
    return seen


def _shape_of_attention(
    func: Function, q: Tensor, *args: object, skip_reshape: bool = False, **kwargs: object
) -> Tensor:
    return q.transpose(1, 2).flatten(2) if skip_reshape else q


def _observe_run(patcher: ModelPatcher, conditioning: Conditioning, latent: Tensor) -> Observations:
    import comfy.sample

    seen = Observations(source="one sampling step with the connected conditioning")
    # Without our techniques, which change what layers are given: the order of nodes must not matter.
    clone = ModelTarget(on_second_model(patcher, ())).with_techniques(())
    _watch(clone.model.diffusion_model, seen, samples=True)
    noise = comfy.sample.prepare_noise(latent, 0)
    with torch.inference_mode():
        comfy.sample.sample(
            clone, noise, 1, 2.0, "euler", "simple", conditioning, conditioning, latent, disable_pbar=True, seed=0
        )
    return seen
