"""The rule of a run of many steps: each computed one tests all forecasts, and corrects what those before it did."""

from __future__ import annotations

import math
from functools import partial

from torch import Tensor

from ..models.samplers import Place, calibration_of
from .budget import CAREFUL, LONG, Budget, Distances, ErrorRate, Skip
from .history import FORECASTS, Evaluation
from .parts import ANSWER, SOFT
from .rule import WARM_UP, Rule

BEGINNING = 0.2
"""This share of the steps, or their square root, is always computed: they decide the composition."""

FASTER = 1.7
"""Where predictions change so many times as fast as when forecasts were tested, errors are taken for the square
of it as large. In ordinary schedules they do not; on one that begins at a noise of thousands a row of six steps, all
foretold as next to nothing, drew another picture. Not seen with flow matching."""

AHEAD = 3
"""Nothing is left out where one of so many steps is too long; errors of earlier predictions are corrected before it."""

MOVED = "the latent moves by more than the sampler's step: forecasts are not corrected, and fewer steps are skipped"
GROWS = "under a soft mask this sampler enlarges a forecast's error in some steps, so these are computed"


class LongRule(Rule):
    """With solvers whose update is known, what a forecast did to the latent is taken back in the next computed step."""

    few, account = False, Budget

    def forget(self) -> None:
        super().forget()
        self._rates = {name: ErrorRate(forecast.points) for name, forecast in FORECASTS.items()}

    def _longest_row(self) -> tuple[int, int]:
        """Return how many evaluations in a row may be forecast, and how many where they take little."""
        steps, careful = len(self._levels) - 1, self.budget.limit <= CAREFUL
        longest = int((self._order + 1) * (min(max(steps / LONG, 1.0), 1.5) if careful else 2.0))
        return longest, longest + (careful and steps > LONG)

    def _may_go(self, place: Place) -> bool:
        steps = len(self._levels) - 1
        # The last prediction is the picture, and only the one before it can correct earlier forecasts.
        inside = max(steps * BEGINNING, math.sqrt(steps)) <= place.position <= steps - 3 + 1e-4
        leaps = any(0 <= leap - math.floor(place.position) < AHEAD for leap in self._leaps)
        if not inside or leaps or self.aside:
            return False
        return self._computed >= WARM_UP and len(self._skipped) < self._longest_row()[1]

    def skip_at(self, place: Place) -> Skip | None:
        if not self._may_go(place):
            return None
        self.read()
        if not self._may_go(place) or self._grows(place):
            return None
        known = [name for name, rate in self._rates.items() if rate.known and self._guided.can(FORECASTS[name])]
        if not known:
            return None
        distance = place.position - self._guided.newest.place.position
        # Early skips cost more of the budget than late ones, so the allowance grows with the step.
        part = place.position / (len(self._levels) - 1) / (1 if len(self._skipped) < self._longest_row()[0] else 4)
        best = min(known, key=lambda name: max(self._rates[name].expected(distance)))
        faster = self._pace(place) / self._pace(self._guided.newest.place)
        moves = self._weight(place) * (faster**2 if faster > FASTER and not self.outcome.flow else 1.0)
        cost = [moves * error for error in self._rates[best].expected(distance)]
        return Skip(best, cost) if self.budget.allows(cost, part) else None

    def _pace(self, place: Place) -> float:
        """Return how much of the picture shows itself in a step, as much as predictions change."""
        here, ahead = (1.0 / math.hypot(1.0, self._noise(sigma)) for sigma in (place.sigma, place.ahead))
        return ahead - here

    def _grows(self, place: Place) -> bool:
        """Return whether an error made here is larger when the run ends; without a mask the calibration has it."""
        if self._share is None or self._correction is None:
            return False
        soft = self._soft > SOFT
        grows = self._correction.grows(self._levels, math.floor(place.position), ANSWER if soft else 1.0) > 1.0
        if soft and grows:
            self.outcome.note(GROWS)
        return grows

    def solver_unknown(self) -> None:
        """Take nothing back any more."""
        if self._correction is not None:
            self.outcome.note(MOVED)
        self._correction, self._order = None, 1
        self.budget.calibration, self.outcome.measured = calibration_of(None, self.outcome.flow)

    def _learn(self, found: Evaluation) -> Tensor | None:
        """Test each forecast, and interpolate the skipped predictions."""
        for name, forecast in FORECASTS.items():
            if self._guided.can(forecast):
                distance = found.place.position - self._guided.newest.place.position
                guess = self._guided.forecast(name, found.place, found.latent)
                self.unread.add(partial(self._tested, name, distance), self._rms(guess - found.denoised))
        if not self._skipped:
            return None
        better = [self._guided.between(place, found, self._order) for place, _ in self._skipped]
        for (place, guess), known in zip(self._skipped, better, strict=True):
            self.unread.add(self.budget.settle, self._rms(guess - known).mul_(self._weight(place)))
        return None if self._correction is None else self._correction.take_back(better)

    def _tested(self, name: str, distance: float, errors: Distances) -> None:
        self._rates[name].test(distance, errors)
        if name in self.outcome.methods:
            self.outcome.largest = max(self.outcome.largest, self.budget.share(errors))
