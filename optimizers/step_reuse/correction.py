"""Solvers whose next latent follows from their predictions: the effect of a forecast on the latent can be undone.

One step later the skipped output is known better. The prediction handed to the solver is then chosen such that the next
latent is that of the better values; earlier predictions that a multistep solver reads again are allowed for. Only what
forecasts did is followed through the steps, so what others do to the latent in between (masks, callbacks) stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.samplers import Place, Solver

KEPT = 7
"""How many steps are kept: the longest row of forecasts, and the step before it, which a multistep solver looks at."""

LEAST = 1e-3
"""Where less of a prediction than this reaches the solver, nothing is taken back: it would have to be enormous."""

STRANGE = 0.05
"""An element is moved by something else if it is off by more than this part of the step's root mean square."""


@dataclass
class _Step:
    """``best``: the prediction as it is known now; ``given``: what the solver got; ``share``: as much of it counted."""

    place: Place
    best: Tensor
    given: Tensor
    share: Tensor | None

    @property
    def error(self) -> Tensor:
        """What was wrong with the prediction that reached the solver."""
        error = self.given - self.best
        return error if self.share is None else error * self.share


class Correction:
    """Gives a solver predictions with which it stands where better knowledge of skipped steps would have put it."""

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._steps: list[_Step] = []
        self._latent: Tensor | None = None

    def strangers(self, latent: Tensor, eps: float) -> Tensor | None:
        """Return which part of ``latent`` is not where the last step led, 0-dim; None in the first step.

        Where a mask blends something into the latent, nobody knows. ``eps``: of the dtype that it was kept in.
        """
        if not self._steps or self._latent is None:
            return None
        last, before = self._steps[-1], self._steps[-2] if len(self._steps) > 1 else None
        update = self._solver(last.place, None if before is None else before.place)
        step = self._latent * (update.keep - 1.0) + last.given * update.now
        if before is not None and update.before:
            step = step + before.given * update.before
        near = step.square().mean().sqrt() * STRANGE + latent.square().mean().sqrt() * (8 * eps)
        strange = (latent - self._latent - step).abs() > near
        if last.share is None:
            return strange.float().mean()
        free = last.share >= 1.0
        return (strange & free).float().sum() / free.float().sum().clamp(min=1.0)

    def leads_to(self, place: Place) -> bool:
        """Return whether the last step led to the noise level of ``place``."""
        return not self._steps or abs(self._steps[-1].place.ahead - place.sigma) <= 1e-3 * place.sigma

    def grows(self, levels: Sequence[float], number: int, answer: float) -> float:
        """Return how many times as large an error of one prediction is when the run ends, its own part taken back.

        The next prediction is made of a latent that is off, and so on; ``answer``: how many times as large as the
        latent's error that of a prediction is. Without noise it is the latent's. ``number``: of the prediction in
        ``levels``, the last one included.
        """
        places = [Place(float(at), *levels[at : at + 2]) for at in range(len(levels) - 1)]
        update = self._solver(places[number], places[number - 1] if number else None)
        off, error, before = update.now, 0.0, 0.0
        for at in range(number + 1, len(places)):
            update = self._solver(places[at], places[at - 1])
            before, error = error, off if places[at].ahead <= 0 else answer * off
            off = (update.keep * off if at > number + 1 else 0.0) + update.now * error + update.before * before
        return abs(off)

    def given(
        self, place: Place, latent: Tensor, prediction: Tensor, off: Tensor | None = None, share: Tensor | None = None
    ) -> Tensor:
        """Return the prediction for the solver, and keep it; ``off``: the latent's error."""
        debt, last = None, self._steps[-1] if self._steps else None
        update = self._solver(place, None if last is None else last.place)
        if place.ahead > 0:  # the last prediction is the picture itself
            if last is not None and update.before and last.given is not last.best:
                # the solver reads the given prediction, not the better one
                debt = last.error * (update.before / update.now)
            if off is not None:
                taken = off * (update.keep / update.now)
                debt = taken if debt is None else debt + taken
        if debt is not None and share is not None:
            debt = torch.where(share > LEAST, debt / share.clamp(min=LEAST), 0.0)
        chosen = prediction if debt is None else prediction - debt
        self._steps = [*self._steps[1 - KEPT :], _Step(place, prediction, chosen, share)]
        self._latent = latent
        return chosen

    def take_back(self, better: Sequence[Tensor]) -> Tensor:
        """Put ``better`` values, oldest first, in the place of the last forecasts; return how far the latent is off."""
        first = len(self._steps) - len(better)
        for step, value in zip(self._steps[first:], better, strict=True):
            step.best = value
        off = torch.zeros_like(better[0])
        for number in range(first, len(self._steps)):
            step, before = self._steps[number], self._steps[number - 1] if number else None
            update = self._solver(step.place, None if before is None else before.place)
            off = off * update.keep + step.error * update.now
            if before is not None and update.before:
                off = off + before.error * update.before
        return off

    def forget(self) -> None:
        self._steps.clear()
        self._latent = None
