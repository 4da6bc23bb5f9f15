"""Read from a MODEL which linear layers could be in int8, and which must not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from .....core.errors import UnsupportedModel
from ....families import find_family
from ....families.family import Family
from ....families.protected import PROTECTED
from ....quantization.layers import Layer
from ..model import describe_model
from .linear import is_int8

PREFIX = "diffusion_model."

def protected_because(name: str, family: Family | None) -> str:
    """Return why the layer of this name must stay in floating point, or an empty string."""
    patterns = (*(family.protected if family is not None else ()), *PROTECTED)
    return next((reason for pattern, reason in patterns if re.search(pattern, name, re.IGNORECASE)), "")


def linear_layers(patcher: Any, tokens: Mapping[str, int]) -> dict[str, tuple[Layer, Any]]:
    """Return the linear layers of a MODEL's network with their modules, by name.

    Args:
        patcher: a MODEL whose weights are those of the file (see ``weight_swap.original``).
        tokens: how many rows each layer is given, where that is known.

    Raises:
        UnsupportedModel: if the network has none, or is quantised in another format already.
    """
    family = find_family(patcher.model.diffusion_model)
    found: dict[str, tuple[Layer, Any]] = {}
    other_formats = set()
    for name, module in patcher.model.diffusion_model.named_modules():
        weight = getattr(module, "weight", None)
        if (other_format := getattr(weight, "_layout_cls", None)) is not None:
            other_formats.add(str(other_format))
        if not isinstance(module, torch.nn.Linear) or weight is None or weight.ndim != 2:
            continue
        rows, columns = weight.shape
        reason = protected_because(name, family)
        found[name] = (Layer(name, columns, rows, tokens.get(name), weight.nbytes, reason), module)
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


def has_int8_layers(patcher: Any) -> bool:
    """Return whether the file was in ComfyUI's int8 format."""
    return any(is_int8(module) for module in patcher.model.diffusion_model.modules())
