"""Who runs when, and what can be said about a speed-up from a few rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

T = TypeVar("T")

SMALLEST_EFFECT = 0.01
"""Less than one percent is not called a difference, however sure it is."""

AS_FAST = 0.03
"""Two variants are called equally fast where the whole interval lies within so much of 1."""

WIDEST = 100.0
"""An interval whose ends are further apart than this factor says nothing, and is not shown."""

MOST_ROUNDS = 20
"""More than these are not made, and not asked for: the machine has to become quieter."""

# Student's t for 95 % on both sides, by degrees of freedom 1 to 19 (the last one serves for more).
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093)  # fmt: skip


# The same for 98 %, which it takes to claim something: of a hundred variants that are as fast as the baseline, one may
# be called faster and one slower.
_T_CLAIM = (31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764,
            2.718, 2.681, 2.650, 2.624, 2.602, 2.583, 2.567, 2.552, 2.539)  # fmt: skip


@dataclass(frozen=True)
class Speedup:
    """How many times faster one variant is than the other.

    Attributes:
        ratio: median over rounds of baseline time / optimized time.
        low: lower end of the 95 % confidence interval of the rounds' (geometric) mean ratio; ``high`` its upper end.
        rounds: with one there is no interval, and ``low`` and ``high`` are 0 and infinite.
    """

    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """``(low, high)``; None where it would say nothing: of two rounds that disagree, or far too wide."""
        clear = self.faster or self.slower or self.same
        return (self.low, self.high) if clear or (self.rounds > 2 and self.high <= WIDEST * self.low) else None

    @property
    def faster(self) -> bool:
        """Whether the whole interval is on the fast side, with the certainty that a claim takes."""
        return self._claim[0] > 1 and self.ratio > 1 + SMALLEST_EFFECT

    @property
    def slower(self) -> bool:
        return self._claim[1] < 1 and self.ratio < 1 / (1 + SMALLEST_EFFECT)

    @property
    def same(self) -> bool:
        return not (self.faster or self.slower) and self.low >= 1 / (1 + AS_FAST) and self.high <= 1 + AS_FAST

    @property
    def not_faster(self) -> bool:
        """Whether it is clear that it is not faster by more than ``AS_FAST``, and nothing else is."""
        return not (self.faster or self.slower or self.same) and self.rounds > 2 and self.high <= 1 + AS_FAST

    @property
    def clear(self) -> bool:
        """Whether there is nothing that more rounds would have to tell."""
        return self.faster or self.slower or self.same or self.not_faster

    @property
    def settled(self) -> bool:
        """Whether an interval twice as wide is clear too: who looks after each round sees chance more often."""
        if self.rounds < 2:
            return False
        wide = replace(self, low=self.low**1.5 / self.high**0.5, high=self.high**1.5 / self.low**0.5)
        return wide.clear

    @property
    def _claim(self) -> tuple[float, float]:
        if self.rounds < 2:
            return self.low, self.high
        mean, margin = math.log(self.low * self.high) / 2, math.log(self.high / self.low) / 2
        wider = margin * student(self.rounds, _T_CLAIM) / student(self.rounds)
        return math.exp(mean - wider), math.exp(mean + wider)


def interleaved(variants: Sequence[T], round_number: int) -> list[T]:
    """Return the variants in this round's order: every other round backwards, so that none is always the last one."""
    return list(variants) if round_number % 2 == 0 else list(reversed(variants))


def student(rounds: int, table: Sequence[float] = _T) -> float:
    """Return Student's factor for so many values, 2 or more: for 95 % on both sides."""
    return table[min(rounds - 1, len(table)) - 1]


def one_more_within(logarithms: Sequence[float]) -> float:
    """Return how far from their mean one more of 2 or more values lies, in 19 of 20 cases (a prediction interval)."""
    return student(len(logarithms)) * statistics.stdev(logarithms) * math.sqrt(1 + 1 / len(logarithms))


def measure_speedup(baseline: Sequence[float], optimized: Sequence[float]) -> Speedup:
    """Return the speed-up from the seconds of each round; both have one value for each round.

    The interval is Student's, on the logarithms of the rounds' own ratios: the machine is about as busy in both runs of
    a round, so their ratio varies less than their times.
    """
    ratios = [before / after for before, after in zip(baseline, optimized, strict=True)]
    middle, rounds = statistics.median(ratios), len(ratios)
    if rounds < 2:
        return Speedup(middle, 0.0, math.inf, rounds)
    logarithms = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logarithms)
    margin = student(rounds) * statistics.stdev(logarithms) / math.sqrt(rounds)
    return Speedup(middle, math.exp(mean - margin), math.exp(mean + margin), rounds)
