"""Layers that ComfyUI 0.33 and newer computes together with the activation before them, past the layer's own code.

There it quantises the tokens of every layer in int8, weight-only ones too, by comfy-kitchen's dispatch, which
torch.compile cannot trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from .....core.activity import Counter
from ....quantization.kernels import Kitchen
from ....quantization.policy import LAYERS
from ..runtime.other_names import names_in, with_names
from .linear import int8_layers

_TOGETHER, _ACTIVATIONS = "linear_input_act", "INPUT_ACT_EAGER"
"""ComfyUI's function for both, and its activations by the names that the function is given."""


class Together(NamedTuple):
    """A module that computes layers together with the activation before them.

    Attributes:
        asking: a ``forward`` that computes one after the other, and asks the layer.
        counting: a ``forward`` that computes both in one step and counts the layers, whose own code is not run, if that
            is what they would do: with comfy-kitchen's dispatch.
    """

    module: Module
    asking: MethodType
    counting: MethodType | None


def modules_together(network: Module) -> Iterator[Together]:
    """Yield such modules of a network whose layers are in int8."""
    for module in network.modules():
        forward = type(module).forward
        layers = int8_layers(module) if _TOGETHER in names_in(forward) else []
        if layers:
            asking, counting = (MethodType(_with(forward, function), module) for function in (_asking, _counting))
            kernels = (getattr(getattr(layer, "kernel", None), "kernel", None) for layer in layers)
            yield Together(module, asking, counting if all(isinstance(one, Kitchen) for one in kernels) else None)


@cache
def _with(forward: FunctionType, function: Callable[..., Tensor]) -> FunctionType:
    """Return a copy of ``forward`` to which ComfyUI's function for both is ``function``, given ``comfy.ops`` first."""
    import comfy

    found = vars(comfy.ops)
    ops = SimpleNamespace(**{**found, _TOGETHER: partial(function, found)})
    return with_names(forward, {"comfy": SimpleNamespace(**{**vars(comfy), "ops": ops})})


def _asking(ops: Mapping[str, Any], linear: Any, x: Tensor, input_act: str) -> Tensor:
    result: Tensor = linear(ops[_ACTIVATIONS][input_act](x))
    return result


def _counting(ops: Mapping[str, Any], linear: Any, x: Tensor, input_act: str) -> Tensor:
    activity = getattr(linear, "network", Counter()).activity  # of another layer: nobody's
    before = activity.use_count + activity.fallback_count
    result: Tensor = ops[_TOGETHER](linear, x, input_act)
    if activity.use_count + activity.fallback_count == before:
        activity.use(LAYERS)
    return result
