"""The search: which candidate to draw next, which hold, and which of these are the best trades.

What moves a picture adds up as independent errors do. So the expected distance of a candidate comes from all that were
drawn with one of its changes, and the next one drawn is where the most is to be gained. Nothing is remembered: the same
pictures give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from .space import Candidate, Space

PICTURES = 3
"""Pictures of each candidate, each from another seed."""

MOST = 24.0
"""Plain pictures' work for a search, unless it is told otherwise."""

FIRST = 12.0
"""The same for a first answer, before nodes are timed."""

_Z = 2.0
"""19 of 20 later pictures are to be inside: 1.645 standard deviations, and more as the fastest of many is chosen."""

_SPREAD, _SPREAD_WEIGHT = 0.45, 6.0
"""Prior standard deviation of the logarithms of a candidate's distances, and its weight in pictures."""

_OWN_WEIGHT = 2.0
"""Weight, in pictures, of the spread of all candidates beside a candidate's own."""

_UNKNOWN = 0.6
"""Standard deviation of the logarithm of expected distances around the measured ones."""

_UNSURE_GAIN = 1.1
"""Factor on the expected gain of a candidate that leaves out steps and was not drawn yet."""

_GAIN = 1.03
"""Draw only candidates that are so many times as fast as the best one that holds."""

_LEAST = 0.003
"""Stop below this expected gain: the logarithm of how many times faster, times the chance that the candidate holds."""

_SMALLEST = 1e-4
"""Distances below are rounding."""


@dataclass(frozen=True)
class DrawnPicture:
    """One measured picture: the key of its candidate, its seed, gain and distance.

    ``gain`` is how many times less of the network it took than the plain picture; ``share`` its distance from that, as
    a share of a seed change, infinite where no picture came of it.
    """

    key: str
    seed: int
    gain: float
    share: float


@dataclass(frozen=True)
class Trade:
    """A candidate that holds: how much faster, and how far its pictures are from the plain ones, at most and expected.

    ``bound`` is what 19 of 20 later pictures stay below.
    """

    candidate: Candidate
    gain: float
    worst: float
    bound: float


@dataclass
class Search:
    """What is known after some pictures."""

    space: Space
    drawn: Sequence[DrawnPicture]
    pictures: int = PICTURES
    _of: dict[str, list[DrawnPicture]] = field(init=False)
    _factors: dict[str, float] = field(init=False)
    _slower: dict[str, float] = field(init=False)
    _spread: float = field(init=False)

    def __post_init__(self) -> None:
        self._of, self._slower = {}, {}
        for one in self.drawn:
            self._of.setdefault(one.key, []).append(one)
        self._spread = _spread([[_log(one.share) for one in each] for each in self._of.values()])
        self._factors = self._learn()
        for cache in {one.cache[0] for one in self.space.candidates}:
            known = [one for one in self.space.candidates if one.key in self._of and one.cache[0] == cache]
            ratios = [self._gain(one) / self.space.gain(one) for one in known]
            self._slower[cache] = fmean(ratios) if ratios else 1.0

    @property
    def work(self) -> float:
        """How many plain pictures' work all took, with the plain ones: of each seed one, and the first once more."""
        return self.pictures + 1 + sum(1 / max(one.gain, 1e-3) for one in self.drawn)

    def next(self) -> tuple[Candidate, int] | None:
        """Return what to draw next and from which seed, counted from 0; None where nothing more is to be gained."""
        best = max((trade.gain for trade in self.trades()), default=1.0)
        worth = [(self._worth(one, best), one) for one in self.space.candidates]
        value, chosen = max(worth, key=lambda entry: entry[0], default=(0.0, self.space.plain))
        return (chosen, len(self._of.get(chosen.key, ()))) if value > _LEAST else None

    def holding(self) -> list[Trade]:
        """Return all that hold, the fastest first."""
        found: list[Trade] = []
        for one in self.space.candidates:
            drawn = self._of.get(one.key, ())
            if len(drawn) >= self.pictures and self._bound(drawn) <= self.space.limit:
                found.append(Trade(one, self._gain(one), max(each.share for each in drawn), self._bound(drawn)))
        return sorted(found, key=lambda trade: (-trade.gain, trade.bound))

    def trades(self) -> list[Trade]:
        """Return those that hold and that no other beats in both gain and distance, the most careful first."""
        line: list[Trade] = []
        for trade in self.holding():
            if trade.gain >= _GAIN and all(trade.bound < other.bound for other in line):
                line.append(trade)
        return line[::-1]

    def _worth(self, one: Candidate, best: float) -> float:
        """Return how much is to be gained by drawing one more picture of a candidate."""
        drawn = self._of.get(one.key, ())
        if len(drawn) >= self.pictures or any(each.share > self.space.limit for each in drawn):
            return 0.0
        gain = self._gain(one) * (_UNSURE_GAIN if one.cache[0] and not drawn else 1.0)
        if gain < best * _GAIN:
            return 0.0
        # How far the mean of the logarithms may be, and how well it is known.
        allowed = math.log(self.space.limit) - _Z * self._spread * math.sqrt(1 + 1 / self.pictures)
        expected, unsure = self._expected(one, drawn)
        chance = 0.5 * math.erfc((expected - allowed) / (unsure * math.sqrt(2)))
        return math.log(gain / best) * chance

    def _expected(self, one: Candidate, drawn: Sequence[DrawnPicture]) -> tuple[float, float]:
        """Return the mean of the logarithms of a candidate's distances, and the standard deviation around it."""
        errors = self.space.errors(one)
        guess = 0.5 * _log(sum(self._factors.get(name, 1.0) * error**2 for name, error in errors.items()))
        if not drawn:
            return guess, _UNKNOWN
        trust, weight = 1 / _UNKNOWN**2, len(drawn) / self._spread**2
        measured = fmean(_log(each.share) for each in drawn)
        return (guess * trust + measured * weight) / (trust + weight), 1 / math.sqrt(trust + weight)

    def _bound(self, drawn: Sequence[DrawnPicture]) -> float:
        logs = [_log(one.share) for one in drawn]
        spread = _spread([logs], self._spread, _OWN_WEIGHT) * math.sqrt(1 + 1 / len(logs))
        return max(math.exp(fmean(logs) + _Z * spread), *(one.share for one in drawn))

    def _gain(self, one: Candidate) -> float:
        drawn = self._of.get(one.key)
        if drawn:
            return fmean(each.gain for each in drawn) * (self.space.faster if one.with_nodes else 1.0)
        return self.space.gain(one) * self._slower.get(one.cache[0], 1.0)

    def _learn(self) -> dict[str, float]:
        """Return by how much the squares of the expected errors must be multiplied, by the changes' names."""
        rows: list[tuple[dict[str, float], float]] = []
        for one in self.space.candidates:
            if one.key in self._of:
                measured = fmean(min(_log(each.share), 2.0) for each in self._of[one.key])
                squares = {name: error**2 for name, error in self.space.errors(one).items()}
                rows.append((squares, math.exp(2 * measured)))
        factors: dict[str, float] = {name: 1.0 for squares, _ in rows for name in squares}
        for _ in range(30):
            for name in factors:
                pull = weight = 0.0
                for squares, measured in rows:
                    if name in squares:
                        total = sum(factors[other] * square for other, square in squares.items())
                        share = factors[name] * squares[name] / total
                        pull, weight = pull + share * math.log(measured / total), weight + share
                factors[name] *= math.exp(pull / (weight + 0.2))
        return factors


def _spread(logs: Sequence[Sequence[float]], known: float = _SPREAD, weight: float = _SPREAD_WEIGHT) -> float:
    """Return the standard deviation around the mean of each group; what is ``known`` counts as ``weight`` values."""
    squares, count = weight * known**2, weight
    for each in logs:
        if len(each) > 1:
            squares += sum((one - fmean(each)) ** 2 for one in each)
            count += len(each) - 1
    return math.sqrt(squares / count)


def _log(value: float) -> float:
    return math.log(max(value, _SMALLEST))
