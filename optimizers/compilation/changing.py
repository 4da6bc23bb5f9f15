"""Tell torch.compile what will change from call to call: sizes, and where weights are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from ..core.not_copied import Args, Kwargs


class Sizes:
    """The sizes that one function was called with.

    The number of text tokens is always told to change: the next prompt must not compile anything. Heights, widths and
    the batch are told to change when images come in a second size: one more graph then serves all of them. ``text``:
    position of the text, ``[batch, tokens, channels]``, if it is not named ``context``.
    """

    def __init__(self, text: int | None = None) -> None:
        self._text = text
        self._seen: set[tuple[object, ...]] = set()

    @contextmanager
    def marked(self, args: Args, kwargs: Kwargs) -> Iterator[tuple[Args, Kwargs]]:
        """Give the arguments with which to call the function inside of the context."""
        size = self._size(args, kwargs)
        another = bool(self._seen) and size not in self._seen
        marked = tuple(self._mark(value, another, index == self._text) for index, value in enumerate(args))
        named = {name: self._mark(value, another, name == "context") for name, value in kwargs.items()}
        # Only for a new size: code for a size that was seen is there, and torch would compile anew for the marks.
        with nullcontext() if size in self._seen else _no_equal_sizes():
            yield marked, named
        self._seen.add(size)

    def _size(self, args: Args, kwargs: Kwargs) -> tuple[object, ...]:
        """Return the part of the sizes by which calls are told apart."""
        shapes = (value.shape for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        return next(((shape[0], *shape[-2:]) for shape in shapes if len(shape) >= 4), ())

    def _mark(self, value: Any, another: bool, text: bool) -> object:
        dimensions = self._changing(value, another, text) if isinstance(value, torch.Tensor) else ()
        if not dimensions:
            return value
        mark: Any = torch._dynamo.maybe_mark_dynamic
        value = value.detach()  # the mark is an attribute of the tensor object: put it on one of our own
        for dimension in dimensions:
            if value.shape[dimension] > 1:  # torch compiles for a size of 1 on its own, whatever it is told
                mark(value, dimension)
        return value

    def _changing(self, value: torch.Tensor, another: bool, text: bool) -> tuple[int, ...]:
        """Return the dimensions of an argument that will change."""
        if text and value.ndim > 1:
            return (0, 1) if another else (1,)
        if another and value.ndim >= 4:
            return (0, value.ndim - 2, value.ndim - 1)
        return (0,) if another and value.ndim == 1 else ()  # a number for each image: timesteps, guidance


class BlockSizes(Sizes):
    """The sizes that blocks of one kind were called with; images are tokens there, ``[batch, tokens, channels]``.

    ``several``: a call of the network has more than one of them, so the first is told to change.
    """

    def __init__(self, several: bool) -> None:
        super().__init__()
        self._seen |= {()} if several else set()

    @contextmanager
    def marked(self, args: Args, kwargs: Kwargs) -> Iterator[tuple[Args, Kwargs]]:
        if self._size(args, kwargs) in self._seen:  # asked for each block, so quick
            yield args, kwargs
            return
        with super().marked(args, kwargs) as given:
            yield given

    def _size(self, args: Args, kwargs: Kwargs) -> tuple[object, ...]:
        return tuple(value.shape for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))

    def _changing(self, value: torch.Tensor, another: bool, text: bool) -> tuple[int, ...]:
        if value.ndim not in (2, 3):
            return ()
        return (0, 1)[: value.ndim - 1] if another else (1,) if text else ()


def _no_equal_sizes() -> AbstractContextManager[object]:
    """Return a context in which torch does not make one variable of two sizes that are equal by chance.

    Else a square image would make its height and width one variable, and the next portrait would be compiled anew.
    """
    from torch.fx.experimental import _config

    config: Any = _config
    return config.patch(use_duck_shape=False) if hasattr(config, "use_duck_shape") else nullcontext()


class WeightGuards:
    """The weights of one module, guarded by what compiled code depends on, and by nothing else.

    torch also guards whether each weight was made in inference mode. ComfyUI loads weights in that mode and writes back
    those that a LoRA has changed outside of it, so each LoRA on other layers would compile the network anew, to the
    same code. One guard on a text for all sizes, dtypes and devices replaces these. Weights of quantised and other
    special classes keep torch's own guards.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._layers: list[tuple[dict[str, torch.nn.Module | None], str]] = []
        self._weights: list[tuple[dict[str, Any], str]] = []
        self._seen: tuple[list[int], list[tuple[int, int]]] = ([], [])
        self._key = ""
        self._during: object = None

    def key(self, during: object = None) -> str:
        """Return a text that is another one when a weight has another size, stride, dtype or device.

        ``during``: a call of the whole network, in which they are looked at once.
        """
        if during is not None and during is self._during:
            return self._key
        self._during = during
        # In every step, so quick: the same objects at the same addresses are the same weights.
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
                if type(weight) in (torch.nn.Parameter, torch.Tensor)
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
