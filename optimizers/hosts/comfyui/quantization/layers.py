"""Read from a MODEL which linear layers could be in int8, and how many tokens each is given.

The latter by running a second network that nobody else has (``weights/clone.py``), so that hooks on its layers
disturb nobody. It is made of ``meta`` tensors, in no time and without memory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from functools import partial

import torch
from torch import Tensor
from torch.nn import Linear, Module

from .....core.errors import UnsupportedModel
from .....core.phrases import phrase
from .....core.shared import Function
from ....families import find_family
from ....quantization.layers import Layer
from ..structure.model import describe_model, is_unet
from ..structure.protocols import ModelPatcher
from ..weights.clone import second_module


def linear_layers(patcher: ModelPatcher, tokens: Mapping[str, int]) -> list[tuple[Layer, Linear]]:
    """Return the linear layers of a MODEL's network with their modules; ``tokens``: rows each is given, where known.

    Its weights must be those of the file (`swap.original`). Raises `UnsupportedModel` if the network has none, or is
    quantised in another format already.
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
    refuse_other_formats(patcher, other_formats)
    if not found:
        raise UnsupportedModel(
            f"The network of this {describe_model(patcher)} has no linear layers that could be in int8.",
            "Remove the node for this model.",
        )
    return found


def refuse_other_formats(patcher: ModelPatcher, formats: Set[str]) -> None:
    """Raise `UnsupportedModel` if layers of a MODEL are quantised in ``formats``, none of which is int8."""
    if formats:
        names = ", ".join(sorted(formats))
        raise UnsupportedModel(
            f"This {describe_model(patcher)} comes from a file that is quantised already ({names}).",
            "Load the full-precision file (fp16, bf16 or fp32) to quantise it to int8.",
            phrase("the file is quantised already"),
        )


def observe(patcher: ModelPatcher) -> tuple[dict[str, int], str]:
    """Return how many tokens each layer of a UNet is given by name, and of which picture: the size it was trained for.

    With guidance, which is a batch of two. For other families, and where shapes alone cannot run through the network,
    nothing is seen.
    """
    nothing: tuple[dict[str, int], str] = {}, "an image of 1024 x 1024, estimated"
    if not is_unet(patcher):
        return nothing
    base = patcher.model
    config, dtype = base.model_config.unet_config, base.get_dtype_inference()
    side = 128 if base.adm_channels else 64
    network = second_module(base.diffusion_model, lambda name, tensor: tensor.to("meta"))
    tokens: dict[str, int] = {}
    for name, module in network.named_modules():
        if isinstance(module, Linear):
            module.register_forward_pre_hook(partial(_count, tokens, name))

    def shape(*sizes: int) -> Tensor:
        return torch.empty(*sizes, device="meta", dtype=dtype)

    def shape_of_attention(
        func: Function, q: Tensor, *args: object, skip_reshape: bool = False, **kwargs: object
    ) -> Tensor:
        return q.transpose(1, 2).flatten(2) if skip_reshape else q

    inputs = {
        "x": shape(2, config["in_channels"], side, side),
        "timesteps": torch.empty(2, device="meta"),
        "context": shape(2, 77, config["context_dim"]),
        "y": shape(2, base.adm_channels) if base.adm_channels else None,
        "transformer_options": {"optimized_attention_override": shape_of_attention},
    }
    try:
        with torch.inference_mode():
            network(**inputs)
    except (RuntimeError, NotImplementedError, TypeError, KeyError, ValueError) as error:
        logging.info("Paceline: token counts are estimated, shapes alone do not run through this UNet: %s", error)
        return nothing
    return tokens, f"a latent of {side} x {side}"


def _count(tokens: dict[str, int], name: str, _: Module, args: tuple[Tensor, ...]) -> None:
    tokens[name] = max(args[0].numel() // args[0].shape[-1], tokens.get(name, 0))
