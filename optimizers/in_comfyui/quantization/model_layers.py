"""Read from a MODEL which linear layers could be in int8."""

from __future__ import annotations

from collections.abc import Set

from torch import Tensor
from torch.nn import Linear

from ...core.errors import UnsupportedModel
from ...core.phrases import phrase
from ...models.families import find_family
from ...quantization.layer_choice import Layer
from ..structure.model_facts import describe_model
from ..structure.protocols import ModelPatcher


def linear_layers(patcher: ModelPatcher) -> list[tuple[Layer, Linear]]:
    """Return the linear layers of a MODEL's network with their modules.

    Its weights must be those of the file (`swap.original`). Raises `UnsupportedModel` if the network has none, or is
    quantised already.
    """
    family = find_family(patcher.model.diffusion_model)
    found: list[tuple[Layer, Linear]] = []
    formats: set[str] = set()
    for name, module in patcher.model.diffusion_model.named_modules():
        weight = getattr(module, "weight", None)
        if (found_format := getattr(weight, "_layout_cls", None)) is not None:
            formats.add(str(found_format))
        if isinstance(module, Linear) and isinstance(weight, Tensor) and weight.ndim == 2:
            found.append((Layer.of(name, weight, family), module))
    refuse_quantised(patcher, formats)
    if not found:
        raise UnsupportedModel(
            f"The network of this {describe_model(patcher)} has no linear layers that could be in int8.",
            "Remove the node for this model.",
        )
    return found


def refuse_quantised(patcher: ModelPatcher, formats: Set[str]) -> None:
    """Raise `UnsupportedModel` if layers of a MODEL are quantised in ``formats``."""
    if formats:
        names = ", ".join(sorted(formats))
        raise UnsupportedModel(
            f"This {describe_model(patcher)} comes from a file that is quantised already ({names}).",
            "Remove the node: ComfyUI computes such a file itself. To choose layers here, load the full-precision file "
            "(fp16, bf16 or fp32).",
            phrase("the file is quantised already"),
        )
