"""In which steps of a schedule attention is computed both ways, and whether that pays: by operations, and timed here.

Full steps compute attention both ways and give the whole one, so what is decided changes nothing of them: the run that
is timed draws the picture of a run whose times are known. It is decided before the first step that is not full, and
holds until the program ends, and for good where the host has a file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from ..core.not_copied import NotCopied
from ..core.seconds import KeptSeconds, where

SHARE = 0.6
"""Of the saving, that full steps may use up. The first two steps are always full, and not counted: what is kept from
the first alone is of noise."""

FIRST = 3
"""The first full steps follow each other; those behind them are evenly apart."""

KEPT, ADDED = 8, 3
"""For each number of an attention's output, how many are read and written to keep a difference and to add it."""

OPERATIONS = {"cpu": 4, "": 256}
"""How many operations of attention take as long as one of these, by type of device, "" for all others: measured on a
processor (one thread, fp32: 2 to 5); else by data sheets (FlashAttention 2 over memory, 16 bits: H100 270, RTX 4090
300), not measured.
"""

LEAST = 1.03
"""What is gained below it could be noise: attention stays whole."""

_where = cache(where)
_known: dict[str, KeptSeconds] = {}
"""By section, the least seconds of one attention: whole, and reduced with keeping the difference."""


class FullSteps:
    """Where the full steps of a schedule are: by noise level, so that solvers may evaluate as often as they like."""

    def __init__(self, levels: Sequence[float], ratio: float) -> None:
        """``levels``: of the schedule, the last one included; ``ratio``: the share of attention that reducing saves."""
        steps = levels[:-1]
        self.ratio, self.steps = ratio, len(steps)
        full = min(max(2, int(ratio * SHARE * self.steps + 1e-6)), self.steps)
        later = max(full - FIRST, 0)
        apart = (self.steps - FIRST) / (later + 1)
        evenly = (FIRST - 1 + round(number * apart) for number in range(1, later + 1))
        self.places = [*range(min(full, FIRST)), *evenly]
        self.levels = [steps[place] for place in self.places]

    @property
    def pay(self) -> bool:
        """Whether they cost less attention than reducing it in all steps saves."""
        return len(self.levels) < self.ratio * self.steps

    def least_tokens(self) -> dict[str, int]:
        """Return how many tokens a block must have to save more attention than moving numbers costs, if they `pay`.

        By type of device, as ``OPERATIONS``. A number of attention's output takes 4 operations for each token. Powers
        of two: where a network is compiled, another number is another graph.
        """
        full = len(self.levels)
        moved, saved = KEPT * full + ADDED * (self.steps - full), 4 * (self.ratio * self.steps - full)
        return {kind: int(2 ** math.ceil(math.log2(each * moved / saved))) for kind, each in OPERATIONS.items()}

    @property
    def mean_distance(self) -> float:
        """Of the other steps from the last full step before, in steps."""
        ends = [*self.places[1:], self.steps]
        distances = [one for place, end in zip(self.places, ends, strict=True) for one in range(1, end - place)]
        return fmean(distances) if distances else 0.0

    def segment(self, sigma: float) -> int:
        """Return how many full steps there are down to a noise level: the first evaluation of each segment is full."""
        return sum(level >= sigma * (1 - 1e-4) for level in self.levels)


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
