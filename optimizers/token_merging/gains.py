"""Whether reduced attention takes less time here: timed in full steps, decided before the first that is not full.

Full steps compute attention both ways and give the whole one, so what is decided changes nothing of them: the run that
is timed draws the picture of a run whose times are known. What was decided holds until the program ends, and for good
where the host has a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..core.not_copied import NotCopied
from ..core.seconds import KeptSeconds, where

LEAST = 1.03
"""What is gained below it could be noise: attention stays whole."""

_where = cache(where)
_known: dict[str, KeptSeconds] = {}
"""By section, the least seconds of one attention: whole, and reduced with keeping the difference."""


class Timed(NamedTuple):
    """An attention whose time counts; ``beside``: settings, and what else may change how long it takes."""

    device: torch.device
    dtype: torch.dtype
    beside: str
    size: str


def moment(device: torch.device) -> Any:
    """Return a moment of a device's work, without waiting for it."""
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def seconds_between(begun: Any, ended: Any) -> float:
    """Return the seconds between two moments; waits for the device where it has not come so far."""
    if isinstance(begun, float):
        return float(ended - begun)
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1000


class Gains(NotCopied):
    """The times of one technique's attentions; ``file`` keeps them for the next start, None for no file."""

    def __init__(self, file: Path | None = None, moment: Callable[[torch.device], Any] = moment) -> None:
        self.file, self.moment = file, moment
        self._new: dict[Timed, list[tuple[Any, Any, Any]]] = {}

    def speedup(self, timed: Timed, full: float) -> float | None:
        """Return how many times faster a run's attention gets, None if unknown; ``full``: share of its full steps."""
        whole, reduced = self._kept(timed).known.get(timed.size, (0.0, 0.0))
        return whole / (reduced + full * whole) if whole else None

    def note(self, timed: Timed, begun: Any, whole: Any, ended: Any) -> None:
        """Note when attention began, when it was computed whole, and when both ways."""
        self._new.setdefault(timed, []).append((begun, whole, ended))

    def decide(self) -> None:
        """Decide by what was noted, where nothing was known."""
        noted, self._new = self._new, {}
        for timed, moments in noted.items():
            known = self._kept(timed)
            least = [min(seconds_between(*each[way : way + 2]) for each in moments) for way in (0, 1)]
            if timed.size not in known.known and min(least) > 0:
                known.keep(timed.size, least)

    def _kept(self, timed: Timed) -> KeptSeconds:
        section = f"{_where(timed.device, timed.dtype)} | {timed.beside}"
        if section not in _known:
            _known[section] = KeptSeconds(self.file, section)
        return _known[section]
