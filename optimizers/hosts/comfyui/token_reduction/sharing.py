"""Matchings that several blocks and several steps use."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from ....token_merging import Reduction

Reductions = dict[Hashable, Reduction]


@dataclass
class _Kept:
    reductions: Reductions = field(default_factory=dict)
    calls: int = 0


class SharedReductions:
    """Keeps the reductions of a model call for a number of calls; emptied when a sampling run begins or ends.

    Which call makes them anew is decided before the network runs and not inside of it: a compiled network then has
    two graphs, one that makes them and one that uses them.

    Model calls are counted, not steps: the number of the step is on the GPU, and to ask for it would make every call
    wait. The positive and the negative pass have keys of their own, so each counts its own calls.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}

    def of_call(self, key: Hashable, refresh_every: int) -> Reductions:
        """Return what an earlier call has made, or an empty dict to fill if that has served ``refresh_every`` calls.

        Args:
            key: what has to agree for reductions to fit: sizes, device, passes.
            refresh_every: number of model calls, at least 1.
        """
        kept = self._kept.get(key)
        if kept is None or kept.calls >= refresh_every:
            kept = self._kept[key] = _Kept()
        kept.calls += 1
        return kept.reductions

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
