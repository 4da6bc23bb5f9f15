"""The rule of a run of few steps: each changes much, and only single late ones, chosen together, cost little.

A schedule with fewer steps moves the early noise levels too, which decide the picture. Here the schedule stays, and
over a late level the last prediction is held; extrapolated ones are farther off where steps are so large. How much a
prediction changes from one level to the next is about proportional to how far ``softened`` noise falls, so the last
change that was seen foretells later ones. The evaluation behind each level that is left out confirms that or not, so
the last level stays. The levels to leave out are chosen as a set: the first one that fits may leave no room for two
that cost less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import combinations, pairwise

from torch import Tensor

from ..models.samplers import Calibration, Place
from .budget import Budget, Distances, Skip
from .history import Evaluation
from .rule import NOISY, WARM_UP, Rule

MARGIN = 1.2
"""Nine of ten measured pictures moved by at most so many times what was foretold."""

CLEAN = 0.1
"""A run that ends at more noise than this is continued by another run, so its last levels are not late. Some samplers
end at the least noise that a network knows, about 0.03."""

BEGINNING = 0.5
"""This part of the levels is always computed."""

SOFT, LEAST = 0.25, 0.5
"""Below about the first noise level predictions change little, but by at least the second part of the change before."""

LATE, OF_SECOND_ORDER = 0.65, 1.1
"""How far the picture moves for an error of a prediction. Of a first-order solver later steps mend a part."""

OF_FLOW = 1.3
"""Factor on these with flow matching, whose last predictions change more than the change before them tells."""

SECOND_LAST, SECOND_LAST_OF_FLOW = 0.8, 0.5
"""``LATE`` of the last but one. On both image transformers that moves the picture least."""


class Account(Budget):
    """Here errors, the ``costs`` of levels, add up as they are: predictions that are held all lag in one direction."""

    def __init__(self, limit: float, calibration: Calibration) -> None:
        super().__init__(limit, calibration, prior=0.0)
        self.costs: dict[int, Distances] = {}

    @property
    def used(self) -> float:
        return self.share(self._spent)

    @property
    def _spent(self) -> Distances:
        return [sum(costs) for costs in zip(*self.costs.values(), strict=True)]

    def spend(self, cost: Distances, level: int = 0) -> None:
        self.costs[level] = cost

    def room(self, rates: Distances) -> float:
        """Return how much more still fits, in units of ``rates``."""
        limit, parts = self.limit / MARGIN, zip(self.seeds, self._spent or [0.0] * len(rates), rates, strict=True)
        return min(((limit * seeds - used) / max(rate, 1e-12) for seeds, used, rate in parts), default=0.0)


class ShortRule(Rule):
    """The rule of ``samplers.FEWEST_STEPS`` to ``samplers.SHORT`` steps, down to ``CLEAN`` or less.

    The solver's update must be known. Where the latent is elsewhere than it led, the rule steps aside.
    """

    few, account = True, Account
    budget: Account

    @property
    def _left(self) -> int:
        """How many levels may still be left out."""
        steps = len(self._levels) - 1
        return (1 if steps < 8 else 2 if steps < 12 else 3) - len(self.budget.costs)

    @cached_property
    def _softened(self) -> Sequence[float]:
        """The levels as the measure of noise, beside a picture of its own size, in which predictions change evenly."""
        return [math.hypot(self._noise(level), SOFT) for level in self._levels]

    @cached_property
    def _costs(self) -> Mapping[int, float]:
        """The levels that may go, and what each costs for a change that ``softened`` tells to be 1."""
        steps, found = len(self._levels) - 1, dict[int, float]()
        for level in range(math.ceil(steps * BEGINNING), steps - 1):
            if max(self._leaps, default=0) >= level - 1 or (not self.outcome.flow and self._levels[level - 1] > NOISY):
                continue
            last_but_one = SECOND_LAST_OF_FLOW if self.outcome.flow else SECOND_LAST
            factor = OF_SECOND_ORDER if self._order > 1 else last_but_one if level == steps - 2 else LATE
            factor *= OF_FLOW if self.outcome.flow else 1.0
            fall = max(self._fall(level - 1, level), LEAST * self._fall(level - 2, level - 1))
            found[level] = factor * self._weight(self.place_of(self._levels[level])) * fall
        return found

    def _fall(self, before: int, after: int) -> float:
        return self._softened[before] - self._softened[after]

    def forget(self) -> None:
        super().forget()
        self._change: Distances = []
        self._wrong = False

    def solver_unknown(self) -> None:
        self.step_aside("the latent is changed between the steps, so no step of a short run can be skipped")

    def _may_go(self, level: int) -> bool:
        """Return whether a level may be left out, whatever it costs."""
        if self.aside or self._skipped or not self._left or self.budget.limit == 0 or self._wrong:
            return False
        # the change from the first evaluation, of noise alone, foretells nothing
        return level in self._costs and self._computed >= WARM_UP

    def skip_at(self, place: Place) -> Skip | None:
        level = round(place.position)
        if not self._may_go(level):
            return None
        self.read()
        if not self._may_go(level) or not self._change or level not in self._best(level):
            return None
        return Skip("hold", self._cost(level))

    def _best(self, level: int) -> Sequence[int]:
        """Return the largest set of levels from this one on that fits, and of those the cheapest."""
        room, later = self.budget.room(self._change), [one for one in self._costs if one >= level]
        sets = [one for count in range(1, self._left + 1) for one in combinations(later, count)]
        costs = [(-len(one), sum(self._costs[level] for level in one), one) for one in sets]
        fit = [one for one in costs if one[1] <= room and all(b - a > 1 for a, b in pairwise(one[2]))]
        return min(fit, default=(0, 0.0, ()))[2]

    def _cost(self, level: int) -> Distances:
        return [change * self._costs[level] for change in self._change]

    def _learn(self, found: Evaluation) -> Tensor | None:
        """Note the change since the evaluation before. Taking back what holding did brought no picture nearer."""
        if len(self._guided):
            newest = self._guided.newest
            places = round(newest.place.position), round(found.place.position)
            self.unread.add(partial(self._changed, *places), self._rms(newest.denoised - found.denoised))
        return None

    def _changed(self, before: int, after: int, errors: Distances) -> None:
        """Note the change between two levels; one left out between them cost at least as much as it tells now."""
        self._change = [error / max(self._fall(before, after), 1e-12) for error in errors]
        for level in set(range(before + 1, after)) & self.budget.costs.keys():
            pairs = zip(self._cost(level), self.budget.costs[level], strict=True)
            self.budget.costs[level] = [max(pair) for pair in pairs]
            self._wrong |= self.budget.used > self.budget.limit  # from here on all is computed
