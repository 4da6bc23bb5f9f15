"""Layers that ComfyUI 0.33 and newer computes together with the activation before them, past the layer's own code.

There it quantises the tokens of every layer in int8, weight-only ones too, by comfy-kitchen's dispatch, which
torch.compile cannot trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from .....core.calls import Function
from ....quantization.kernels import Kitchen, SafeKernel
from ..other_names import names_in, with_names
from .linear import int8_layers

_TOGETHER, _ACTIVATIONS = "linear_input_act", "INPUT_ACT_EAGER"
"""ComfyUI's function for both, and its activations by the names that the function is given."""


class Together(NamedTuple):
    """A module that computes layers together with the activation before them.

    Attributes:
        asking: a ``forward`` that computes one after the other, and asks the layer.
        quicker: whether that is what its layers would do, in one step: with comfy-kitchen's dispatch.
    """

    module: Module
    asking: MethodType
    quicker: bool


def modules_together(network: Module) -> Iterator[Together]:
    """Yield such modules of a network whose layers are in int8."""
    for module in network.modules():
        forward = type(module).forward
        layers = int8_layers(module) if _TOGETHER in names_in(forward) else []
        if layers:
            yield Together(module, MethodType(_asking(forward), module), all(map(_is_kitchens, layers)))


def _is_kitchens(layer: Any) -> bool:
    kernel: SafeKernel | None = getattr(layer, "kernel", None)
    return kernel is not None and isinstance(kernel.kernel, Kitchen)


@cache
def _asking(forward: FunctionType) -> FunctionType:
    """Return a copy of ``forward`` to which ComfyUI's function for both is one after the other."""
    import comfy

    found = vars(comfy.ops)
    ops = SimpleNamespace(**{**found, _TOGETHER: partial(_one_after_the_other, found[_ACTIVATIONS])})
    return with_names(forward, {"comfy": SimpleNamespace(**{**vars(comfy), "ops": ops})})


def _one_after_the_other(activations: Mapping[str, Function], linear: Any, x: Tensor, input_act: str) -> Tensor:
    result: Tensor = linear(activations[input_act](x))
    return result
