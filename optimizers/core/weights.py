"""Weights that are not the numbers they hold: whoever reads, joins or converts weights asks here first.

Loaders and quantisers put tensors of their own in the place of weights (torchao, bitsandbytes, GGUF, quanto), or packed
numbers, which only their own layers understand. Read as plain ones they give noise, or an error of torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn import Linear

from .errors import UnsupportedModel

PLAIN = (torch.nn.Parameter, Tensor, FakeTensor)
"""Exact classes of tensors that are nothing but their numbers; subclasses mean something else by their memory. Fake
ones have no memory, and stand for plain ones where a network is only looked at."""


def foreign(weight: Tensor) -> str:
    """Return the kind of a weight, e.g. ``of the class GGMLTensor``; empty if it is the numbers that it holds."""
    kind = type(weight)
    if kind not in PLAIN:
        return f"of the class {kind.__name__}"
    is_number = weight.is_floating_point() or weight.is_complex()
    return "" if is_number else f"packed into {str(weight.dtype).removeprefix('torch.')}"


def foreign_weight(network: Any, known: tuple[type, ...] = ()) -> tuple[str, str] | None:
    """Return the name of the first weight of a network that is foreign, and what it is; None if there is none.

    ``network``: a module, or what stands for one in a host; ``known``: classes that the host computes with itself.
    """
    for path, module in network.named_modules():
        for name, weight in module._parameters.items():
            if weight is None or issubclass(type(weight), known):
                continue
            found = foreign(weight)
            if name != "weight" and type(weight) in PLAIN:  # such as the places of something, in integers
                continue
            if not found and isinstance(module, Linear):
                is_whole = tuple(weight.shape) == (module.out_features, module.in_features)
                found = "" if is_whole else f"packed into the shape {list(weight.shape)}"
            if found:
                return f"{path}.{name}" if path else name, found
    return None


def refuse_packed_weights(title: str, network: Any, model: str, remedy: str, known: tuple[type, ...] = ()) -> None:
    """Raise `UnsupportedModel` if ``title`` would read weights of ``network`` that are foreign; ``model``: its name."""
    found = foreign_weight(network, known)
    if found is not None:
        raise UnsupportedModel(
            f"{title}: the weights of this {model} are {found[1]} ({found[0]}), which only the loader or quantiser "
            "that made them can read.",
            remedy,
        )
