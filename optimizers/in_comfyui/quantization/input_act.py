"""Layers that ComfyUI 0.33 and newer computes together with the activation before them, past the layer's own code.

There it quantises the tokens of every layer in int8, weight-only ones too, by comfy-kitchen's dispatch, which
torch.compile cannot trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

from torch import Tensor
from torch.nn import Module

from .int8_linear import int8_layers

_TOGETHER, _ACTIVATIONS = "linear_input_act", "INPUT_ACT_EAGER"
"""ComfyUI's function for both, and its activations by the names that the function is given."""


def modules_together(network: Module) -> Iterator[tuple[Module, MethodType]]:
    """Yield such modules of a network whose layers are in int8, each with a ``forward`` that asks the layer itself."""
    for module in network.modules():
        forward: Any = type(module).forward
        code = getattr(forward, "__code__", None)
        if code is not None and _TOGETHER in code.co_names and int8_layers(module):
            yield module, MethodType(_one_after_the_other(forward), module)


@cache
def _one_after_the_other(forward: FunctionType) -> FunctionType:
    """Return a copy of ``forward`` that computes the activation, then calls the layer."""
    import comfy

    def asking(linear: Any, x: Tensor, input_act: str) -> Tensor:
        result: Tensor = linear(getattr(comfy.ops, _ACTIVATIONS)[input_act](x))
        return result

    ops = SimpleNamespace(**{**vars(comfy.ops), _TOGETHER: asking})
    names = {**forward.__globals__, "comfy": SimpleNamespace(**{**vars(comfy), "ops": ops})}
    names.pop("__name__", None)  # torch would look in that module for the function
    copy = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    copy.__kwdefaults__ = forward.__kwdefaults__
    return copy
