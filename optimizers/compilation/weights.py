"""Guard a network's weights by what compiled code depends on, and by nothing else.

torch also guards whether each weight was made in inference mode. ComfyUI loads weights in that mode and writes back
those that a LoRA has changed outside of it, so each LoRA on other layers would compile the network anew, to the same
code. One guard on a text for all sizes, dtypes and devices replaces these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from typing import Any

import torch

_PLAIN = (torch.nn.Parameter, torch.Tensor)


class WeightGuards:
    """The weights of one module; those of quantised and other special classes keep torch's own guards.

    ``version`` changes whenever weights may have moved, if the host knows that; None looks in every call.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._layers: list[tuple[dict[str, torch.nn.Module | None], str]] = []
        self._weights: list[tuple[dict[str, Any], str]] = []
        self._seen: tuple[list[int], list[tuple[int, int]]] = ([], [])
        self._key = ""
        self._checked: Hashable = None
        self.version: Hashable = None

    def key(self) -> str:
        """Return a text that is another one when a weight has another size, stride, dtype or device."""
        if self._key and self.version is not None and self.version == self._checked:
            return self._key
        self._checked = self.version
        # Where nobody knows, in every step, so quick: the same objects at the same addresses are the same weights.
        try:
            seen = self._look()
        except (KeyError, AttributeError, RuntimeError):  # something was taken away, or is special now
            seen = ([], [])
        if seen != self._seen or not self._key:
            layers = list(self._module.modules())
            self._layers = [(layer._modules, name) for layer in layers for name in layer._modules]
            self._weights = [
                (layer._parameters, name)
                for layer in layers
                for name, weight in layer._parameters.items()
                if type(weight) in _PLAIN
            ]
            self._seen = self._look()
            lines = []
            for place, name in self._weights:
                weight = place[name]
                size = tuple(weight.shape), weight.stride()
                lines.append(f"{name} {size} {weight.dtype} {weight.device} {weight.requires_grad}")
            self._key = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        return self._key

    def keep(self, entries: Iterable[Any]) -> list[bool]:
        """Say which of torch's guards to keep: all but those that :meth:`key` stands for (``guard_filter_fn``).

        After a graph break, functions do not see the key and may be called for layers of different sizes: they keep
        torch's.
        """
        entries = list(entries)
        if not any(isinstance(entry.value, str) and entry.value == self._key for entry in entries):
            return [True] * len(entries)
        ours = {identity for identity, _ in self._seen[1]}
        return [not (entry.guard_type == "TENSOR_MATCH" and id(entry.value) in ours) for entry in entries]

    def _look(self) -> tuple[list[int], list[tuple[int, int]]]:
        layers = [id(place[name]) for place, name in self._layers]
        return layers, [(id(place[name]), place[name].data_ptr()) for place, name in self._weights]
