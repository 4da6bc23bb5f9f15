"""Matchings that several blocks and several steps use."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from ....token_merging import Reduction


@dataclass
class _Entry:
    reduction: Reduction
    call: object
    calls: int = 1


class SharedReductions:
    """Keeps a reduction for a number of model calls; emptied when a sampling run begins or ends.

    Model calls are counted, not steps: the number of the step is on the GPU, and to ask for it would make every call
    wait. The positive and the negative pass have keys of their own, so each counts its own calls.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}

    def get(self, key: Hashable, call: object, refresh_every: int, make: Callable[[], Reduction]) -> Reduction:
        """Return the reduction for ``key``, made anew if it has served ``refresh_every`` calls.

        Args:
            key: what has to agree for a reduction to fit: size, device, part of the model, batch.
            call: identifies the model call; blocks of one call share.
            refresh_every: number of model calls, at least 1.
            make: makes a reduction from the tokens at hand.
        """
        entry = self._entries.get(key)
        if entry is not None and entry.call is not call:
            entry.call = call
            entry.calls += 1
        if entry is None or entry.calls > refresh_every:
            entry = self._entries[key] = _Entry(make(), call)
        return entry.reduction

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
