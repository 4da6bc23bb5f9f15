"""What to expect of other settings: ranges of time and of distance, from an observed run, its replays and its probe.

Distances are shares of what another seed changes (``core/choices.py``), and those of other seeds and prompts of the
same workflow. ``benchmarks/one_run.py`` says how often they are right: constants were chosen on other workflows, and
the bounds widened by what it found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import mul
from typing import NamedTuple

from ..optimizers.step_reuse.reuse_policy import few_steps
from .replay import Sampling, replay


class Range(NamedTuple):
    """From ``low`` to ``high`` in 9 of 10 cases."""

    low: float
    likely: float
    high: float

    def times(self, other: Range) -> Range:
        return Range(*map(mul, self, other))

    def of(self, unit: float, most: float = math.inf) -> Range:
        """Return this many times a ``unit``, at ``most``."""
        return Range(*(min(unit * end, most) for end in self))


SMALLER = (0.35, 0.6, 1.0)
"""Of the largest budget of Reuse Steps that is allowed, these parts are tried: a smaller one may leave out as much."""

FINEST = 0.01
"""Budgets are multiples of it."""

REUSED = Range(0.08, 0.23, 0.62)
"""How far Reuse Steps moves a picture of a UNet, for each unit of its budget. Its estimate for one picture says less
about the next one."""

REUSED_OF_FEW = Range(0.15, 0.4, 0.9)
"""The same of runs with few steps, of those that leave out one."""

ELSEWHERE = 2.0
"""Factor by which the range widens with flow matching."""

PROBED, KEPT = Range(0.3, 1.5, 7.5), Range(0.25, 1.0, 3.75)
"""How far a picture moves for each unit of an error: of a prediction, of what is kept from steps."""

WORK = Range(0.83, 1.0, 1.4)
"""Work that Reuse Steps leaves in another picture, as a multiple of this picture's: up to 1.4, because the budget was
chosen for this one."""

OTHERS_OF_FEW = 1.7
"""Of few steps: a level costs one picture at most so many times what it costs another one of the same workflow, in nine
of ten pairs (benchmarks/step_caches.py --few)."""

GAIN = 1.05
"""Less is not offered: it would read as 1.0x, and two plain runs differ by as much."""

BUSY = 1.2
"""From here on plain evaluations differ by more than those of a calm machine do."""

ROUNDING = 0.001
"""Error of a prediction that is taken for that of compiled code. SDXL's VAE, compiled on an H100, moved a picture by
0.007, which is inside of the range that comes of it."""


@dataclass(frozen=True)
class Probed:
    """What one candidate was worth in single evaluations.

    Attributes:
        speedup: how many times faster than the plain one, ``[low, ratio, high]``; [1, 1, 1] where it was not evaluated.
        clear: whether more rounds would tell nothing new.
        error: root mean square over the points of the prediction's error, as a share of what another seed changes; it
            is 0 in whole steps.
        moves: how far the picture moves for each unit of it.
        points: how many different evaluations that is of.
        once: seconds that it took before its first evaluation was ready, over what one takes; at least so many where
            that was too long.
        noise: how many times longer the plain evaluations took at one time than at another.
        why_not: why it was not evaluated, or changed nothing; empty otherwise.
        kind: of its technique, of which a model carries one.
    """

    name: str
    speedup: tuple[float, float, float] = (1.0, 1.0, 1.0)
    clear: bool = False
    error: float = 0.0
    moves: Range = PROBED
    points: int = 0
    once: float = 0.0
    noise: float = 1.0
    why_not: str = ""
    kind: str = ""

    def wins(self, seconds: float) -> float:
        """Return the seconds that it alone is likely to win of so many."""
        return seconds * (1 - 1 / max(self.speedup[1], 1e-9))

    @property
    def state(self) -> str:
        """``refused``, ``untried``, ``faster``, ``drowned``, ``unclear`` or ``slower``.

        ``faster`` is a whole interval that is, by more than plain evaluations differ; ``drowned`` may be, by no more
        than those of a busy machine differ; ``unclear`` was not evaluated often enough to say so.
        """
        slow_end, ratio, fast_end = self.speedup
        if self.why_not or not self.points:
            return "refused" if self.why_not else "untried"
        if slow_end > 1 and ratio > self.noise:
            return "faster"
        if 1 < ratio <= self.noise >= BUSY:
            return "drowned"
        return "unclear" if not self.clear and slow_end <= 1 < fast_end else "slower"


@dataclass(frozen=True)
class Expected:
    """What some settings together would be worth.

    Attributes:
        names: of the probed candidates; ``budget`` of Reuse Steps, None without it.
        time_left: share of ``Sampling.sampling_seconds``.
        distance: how far a picture would move.
    """

    names: tuple[str, ...]
    budget: float | None
    time_left: Range
    distance: Range


def expect(sampling: Sampling | None, probed: Sequence[Probed] = (), budget: float | None = None) -> Expected:
    """Return what the candidates and Reuse Steps with a ``budget`` would be worth together; a VAE has no ``sampling``.

    Seconds of an evaluation multiply, distances of different causes add up in squares.
    """
    time_left, distances = Range(1.0, 1.0, 1.0), list[Range]()
    for one in probed:
        low, ratio, high = one.speedup
        time_left = time_left.times(Range(1 / max(high, ratio), 1 / ratio, 1 / max(low, 0.1)))
        distances.append(one.moves.of(one.error))
    if sampling is not None and budget is not None and replay(sampling, budget).work < 1:
        time_left = time_left.times(_work(sampling, budget))
        distances.append(_reused(sampling).of(budget))
    return Expected(tuple(one.name for one in probed), budget, time_left, _sum(distances))


def propose(sampling: Sampling | None, probed: Sequence[Probed], limit: float, reuse: bool = True) -> Expected | None:
    """Return the fastest settings whose cautious end is inside of ``limit``; None where nothing is faster.

    A candidate takes part only where it is faster, and one of a kind. ``reuse``: whether Reuse Steps may be among them.
    """
    faster = [one for one in probed if one.state == "faster"]
    unit = _reused(sampling).high if sampling and reuse and not replay(sampling, FINEST).why_not else math.inf
    best: Expected | None = None
    for chosen in (each for count in range(len(faster) + 1) for each in combinations(faster, count)):
        kinds = [one.kind for one in chosen if one.kind]
        if len({*kinds}) < len(kinds):
            continue
        most = math.sqrt(max(0.0, limit**2 - expect(sampling, chosen).distance.high ** 2)) / unit
        allowed = {min(1.0, round(FINEST * int(most * part / FINEST), 2)) for part in SMALLER} - {0.0}
        for budget in (None, *sorted(allowed)):
            found = expect(sampling, chosen, budget)
            inside = found.distance.high <= limit and (found.names or found.time_left.likely < 1)
            if inside and (best is None or found.time_left.likely < best.time_left.likely):
                best = found
    return best


def speedup(total: float, parts: Sequence[tuple[float, Range]]) -> Range:
    """Return how many times faster a workflow of ``total`` seconds would be: seconds of parts, and what is left."""
    rest = total - sum(seconds for seconds, _ in parts)
    left = (rest + sum(seconds * time_left[end] for seconds, time_left in parts) for end in (2, 1, 0))
    return Range(*(total / max(one, 1e-9) for one in left))


def pays_from(once: float, won: float) -> int:
    """Return the picture from which on what costs some seconds once has won them back; it wins ``won`` for each."""
    return max(1, math.ceil(min(once / max(won, 1e-9), 1e9)))


def _work(sampling: Sampling, budget: float) -> Range:
    """Return the work that a budget leaves in another picture; of few steps, if levels cost it less or more."""
    found = replay(sampling, budget).work
    if not few_steps(sampling.levels, sampling.solver):
        return WORK.of(found, 1.0)
    larger = min(1.0, budget * OTHERS_OF_FEW)
    return Range(replay(sampling, larger).work, found, replay(sampling, budget / OTHERS_OF_FEW).work)


def _reused(sampling: Sampling) -> Range:
    if few_steps(sampling.levels, sampling.solver):
        return REUSED_OF_FEW
    wider = ELSEWHERE if sampling.flow else 1.0
    return Range(REUSED.low / wider, REUSED.likely, REUSED.high * wider)


def _sum(distances: Sequence[Range]) -> Range:
    return Range(*(math.hypot(*(one[end] for one in distances)) for end in range(3)))
