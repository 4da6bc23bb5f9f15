"""What belongs to one model or one run, and is never two."""

from __future__ import annotations

from typing import TypeVar

S = TypeVar("S", bound="Shared")


class Shared:
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
