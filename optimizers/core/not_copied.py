"""Types of functions that are only passed on, and the base class of what belongs to one model or run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Args = tuple[object, ...]
"""Arguments by position."""

Kwargs = dict[str, object]
"""Arguments by name."""

Function = Callable[..., Any]
"""A function of another package. Where its result is used, write ``Callable[..., Tensor]`` or the like instead."""


S = TypeVar("S", bound="NotCopied")


class NotCopied:
    """Base class of what counts, decides or is held for one model or run: its copy is the object itself.

    It hangs on what other nodes copy before and in a run, shallowly and deeply, such as ComfyUI's ``model_options``.
    Such a copy belongs to the same run, so that it counts once and decides once; and locks, networks and tensors that
    can be reached from here are not copied with it.
    """

    __slots__ = ()

    def __copy__(self: S) -> S:
        return self

    def __deepcopy__(self: S, memo: dict[int, object]) -> S:
        return self
