"""Solvers whose next latent follows from their predictions: the effect of a forecast on the latent can be undone.

One step later the skipped output is known better. The prediction handed to the solver is then chosen such that the next
latent is that of the better values; earlier predictions that a multistep solver reads again are allowed for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from .history import Place


@dataclass(frozen=True)
class Update:
    """One step of a solver: next latent = keep * latent + now * prediction + before * the last prediction."""

    keep: float
    now: float
    before: float = 0.0


Solver = Callable[[Place, Place | None], Update]
"""Returns the update of a step, given its place and that of the step before (None in the first)."""


def euler(place: Place, _: Place | None) -> Update:
    """Return Euler's step, which is also that of DDIM without noise."""
    keep = place.ahead / place.sigma
    return Update(keep, 1.0 - keep)


def dpmpp_2m(place: Place, previous: Place | None) -> Update:
    """Return the step of DPM-Solver++(2M), https://arxiv.org/abs/2211.01095, in the variables of denoised pictures."""
    keep = place.ahead / place.sigma
    if previous is None or place.ahead == 0:
        return Update(keep, 1.0 - keep)
    ahead, behind = math.log(place.sigma / place.ahead), math.log(previous.sigma / place.sigma)
    extra = ahead / (2 * behind)
    return Update(keep, (1.0 - keep) * (1.0 + extra), -(1.0 - keep) * extra)


def res_multistep(place: Place, previous: Place | None) -> Update:
    """Return the step of the Refined Exponential Solver, multistep, https://arxiv.org/abs/2308.02157."""
    keep = place.ahead / place.sigma
    if previous is None or place.ahead == 0:
        return Update(keep, 1.0 - keep)
    ahead, behind = math.log(place.sigma / place.ahead), math.log(previous.sigma / place.sigma)
    extra = (ahead - 1.0 + keep) / behind  # ahead ** 2 * phi2(-ahead) / behind
    return Update(keep, 1.0 - keep + extra, -extra)


KEPT = 7
"""How many steps are kept: the longest row of forecasts, and the step before it, which a multistep solver looks at."""


@dataclass
class _Step:
    place: Place
    latent: Tensor
    best: Tensor
    given: Tensor
    moved: Tensor | None


class Correction:
    """Gives a solver predictions with which it stands where better knowledge of skipped steps would have put it."""

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._steps: list[_Step] = []
        self._moved: Tensor | None = None

    def moved(self, change: Tensor) -> None:
        """Allow for a change of the latent by other code since the last step, which must stay."""
        self._moved = change

    def given(self, place: Place, latent: Tensor, prediction: Tensor, off: Tensor | None = None) -> Tensor:
        """Return the prediction for the solver, and keep it; ``off``: the latent's error."""
        chosen, last = prediction, self._steps[-1] if self._steps else None
        update = self._solver(place, None if last is None else last.place)
        if place.ahead > 0:  # the last prediction is the picture itself
            if last is not None and update.before and last.given is not last.best:
                # the solver reads the given prediction, not the better one
                chosen = chosen - (last.given - last.best) * (update.before / update.now)
            if off is not None:
                chosen = chosen - off * (update.keep / update.now)
        self._steps = [*self._steps[1 - KEPT :], _Step(place, latent, prediction, chosen, self._moved)]
        self._moved = None
        return chosen

    def take_back(self, latent: Tensor, better: Sequence[Tensor]) -> Tensor:
        """Put ``better`` values, oldest first, in the place of the last forecasts; return how far the latent is off."""
        skipped = self._steps[-len(better) :]
        for step, value in zip(skipped, better, strict=True):
            step.best = value
        wanted = skipped[0].latent
        for number in range(len(self._steps) - len(better), len(self._steps)):
            step = self._steps[number]
            before = self._steps[number - 1] if number else None
            update = self._solver(step.place, None if before is None else before.place)
            wanted = wanted * update.keep + step.best * update.now
            if before is not None and update.before:
                wanted = wanted + before.best * update.before
            moved = self._moved if step is self._steps[-1] else self._steps[number + 1].moved
            wanted = wanted if moved is None else wanted + moved
        return latent - wanted

    def forget(self) -> None:
        self._steps.clear()
        self._moved = None
