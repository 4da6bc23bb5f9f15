"""Tell torch.compile which sizes will change, so that one graph serves all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from ...core.calls import Args, Kwargs


class Sizes:
    """The sizes that one function was called with.

    The number of text tokens is always told to change: the next prompt must not compile anything. Heights, widths and
    the batch are told to change when images come in a second size: one more graph then serves all of them. ``text``:
    position of the text, ``[batch, tokens, channels]``, if it is not named ``context``.
    """

    def __init__(self, text: int | None = None) -> None:
        self._text = text
        self._seen: set[tuple[int, ...]] = set()

    @contextmanager
    def marked(self, args: Args, kwargs: Kwargs) -> Iterator[tuple[Args, Kwargs]]:
        """Give the arguments with which to call the function inside of the context."""
        shapes = (value.shape for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        size = next(((shape[0], *shape[-2:]) for shape in shapes if len(shape) >= 4), ())
        another = bool(self._seen) and size not in self._seen
        marked = tuple(_mark(value, another, index == self._text) for index, value in enumerate(args))
        named = {name: _mark(value, another, name == "context") for name, value in kwargs.items()}
        # Only for a new size: code for a size that was seen is there, and torch would compile anew for the marks.
        with nullcontext() if size in self._seen else _no_equal_sizes():
            yield marked, named
        self._seen.add(size)


def _mark(value: object, another: bool, text: bool) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    dimensions: tuple[int, ...] = ()
    if text and value.ndim > 1:
        dimensions = (0, 1) if another else (1,)
    elif another and value.ndim >= 4:
        dimensions = (0, value.ndim - 2, value.ndim - 1)
    elif another and value.ndim == 1:  # a number for each image: timesteps, guidance
        dimensions = (0,)
    if not dimensions:
        return value
    mark: Any = torch._dynamo.maybe_mark_dynamic
    value = value.detach()  # the mark is an attribute of the tensor object: put it on one of our own
    for dimension in dimensions:
        if value.shape[dimension] > 1:  # torch compiles for a size of 1 on its own, whatever it is told
            mark(value, dimension)
    return value


def _no_equal_sizes() -> AbstractContextManager[object]:
    """Return a context in which torch does not make one variable of two sizes that are equal by chance.

    Else a square image would make its height and width one variable, and the next portrait would be compiled anew.
    """
    from torch.fx.experimental import _config

    config: Any = _config
    return config.patch(use_duck_shape=False) if hasattr(config, "use_duck_shape") else nullcontext()
