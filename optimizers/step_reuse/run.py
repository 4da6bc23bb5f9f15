"""One sampling run: what is computed, what is forecast, and what that costs. torch only; a host calls it.

For each evaluation of the guided prediction::

    decision = run.begin(place, latent, active)      # COMPUTE, GUIDANCE or FORECAST
    ...                                              # for each call for several passes: forecast() or keep()
    run.end(guided)                                  # what the passes together came to

Numbers that were measured on a device are read when the next evaluation begins: where the samplers wait anyway.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from enum import Enum

import torch
from torch import Tensor

from .budget import Budget, Distances, ErrorRate, calibration_of, rms
from .forecasts import FORECASTS
from .history import Evaluation, History, Place
from .outcome import Outcome
from .passes import Passes
from .settings import StepReuseSettings
from .solvers import ORDERS, SOLVERS, Correction

FEWEST_STEPS = 8
"""Schedules with fewer steps are left alone: each step changes too much."""

WARM_UP = 3
"""How many evaluations at the start are always computed: two for a forecast, one to test it."""

BEGINNING = 0.2
"""This part of the steps, or their root, is always computed: it decides what is drawn, and errors tell little there."""

CAREFUL = 0.05
"""Up to this budget as many evaluations in a row may be forecast as the solver's order and one, above it twice as many:
they are known afterwards from a polynomial of that order. With one more, Euler was a tenth farther off."""

SEEDS, SKIPPED, GUIDANCE = "seeds", "skipped", "guidance"
"""Names of what is measured beside the forecasts: the distance from the mean, errors that are known by now, and how
much the difference between the passes changed."""


class Decision(Enum):
    """What is done in one evaluation."""

    COMPUTE = "compute"
    GUIDANCE = "guidance"
    FORECAST = "forecast"


class ReuseRun:
    """The state of one run.

    Args:
        settings: what was asked for.
        noise_levels: of the schedule, the last one included, from high to low.
        outcome: is kept up to date.
        solver: ComfyUI's name of it, where it is known. With one of ``SOLVERS``, what a forecast did to the latent is
            taken back in the next computed step.
        unet: whether the network is a UNet. All others count as transformers, whose constants are more careful.
    """

    def __init__(
        self,
        settings: StepReuseSettings,
        noise_levels: Sequence[float],
        outcome: Outcome | None = None,
        solver: str | None = None,
        unet: bool = False,
    ) -> None:
        self.settings = settings
        self._correction = Correction(SOLVERS[solver]) if solver in SOLVERS else None
        self._order = ORDERS.get(solver or "", 1)
        self.levels = list(noise_levels)
        self.outcome = outcome or Outcome()
        self.outcome.steps = len(self.levels) - 1
        calibration, self.outcome.measured = calibration_of(solver, unet)
        self.outcome.unet = unet
        self.budget = Budget(settings.budget, calibration)
        self._candidates = tuple(FORECASTS) if settings.forecast == "auto" else (settings.forecast,)
        self._first: Tensor | None = None
        self._skipped: list[tuple[Place, Tensor]] = []
        self._unread: list[tuple[str, float, Tensor]] = []
        self._active: Hashable = None
        self._slot = 0
        self._forget()
        self._latent: Tensor | None = None
        self.decision = Decision.COMPUTE
        self.method = ""
        self.guidance_scale: float | None = None
        self.place = self.place_of(self.levels[0])

    @property
    def too_short(self) -> bool:
        """Whether the schedule has too few steps to leave one out."""
        return len(self.levels) - 1 < FEWEST_STEPS

    def place_of(self, sigma: float) -> Place:
        """Return where a noise level stands in the schedule."""
        return Place.among(self.levels, sigma)

    def begin(self, place: Place, latent: Tensor, active: Hashable = None, guidance: float | None = None) -> Decision:
        """Decide about an evaluation.

        Args:
            place: where it stands.
            latent: its input, ``[batch, ...]``.
            active: what takes part in it (conditionings, ControlNets); where that changes, nothing is reused.
            guidance: scale of the guidance, where the negative pass can be left out; else None.
        """
        self._read()
        self.place, self._latent, self._slot = place, latent.float().clone(), 0
        if active != self._active:
            self._forget()
            self._active = active
        self.guidance_scale = guidance
        self.decision = self._decide(place)
        return self.decision

    def _decide(self, place: Place) -> Decision:
        steps = len(self.levels) - 1
        longest = (self._order + 1) * (1 if self.settings.budget <= CAREFUL else 2)
        # The last prediction is the picture, and only the one before it can take back what came before.
        allowed = max(steps * BEGINNING, math.sqrt(steps)) <= place.position <= steps - 3 + 1e-4
        if self.too_short or not allowed or self._computed < WARM_UP or self._in_a_row >= longest:
            return Decision.COMPUTE
        distance = place.position - self._guided.newest.place.position
        # Early skips are the worst buys: what they use up of the budget, more of the later ones could have had.
        part = place.position / steps
        if self.settings.use_forecast:
            known = [name for name, rate in self._rates.items() if rate.known and self._guided.can(FORECASTS[name])]
            if known:
                best = min(known, key=lambda name: max(self._rates[name].expected(distance)))
                if self._pays(self._rates[best].expected(distance), part):
                    self.method = best
                    return Decision.FORECAST
        if self._passes.difference_at is not None and self.guidance_scale is not None and self._guidance_rate.known:
            expected = self._guidance_rate.expected(place.position - self._passes.difference_at)
            if self.settings.use_guidance and self._pays(expected, part, for_good=True):
                return Decision.GUIDANCE
        return Decision.COMPUTE

    def _pays(self, expected: Distances, part: float, for_good: bool = False) -> bool:
        cost = [self.place.weight * error for error in expected]
        if not self.budget.allows(cost, part):
            return False
        self.budget.spend(cost, for_good)
        return True

    def _forget(self) -> None:
        """Start anew: what takes part has changed, so that earlier outputs say nothing about later ones."""
        self._passes = Passes()
        self._guided = History()
        self._rates = {name: ErrorRate(FORECASTS[name].points) for name in self._candidates}
        self._guidance_rate = ErrorRate(1)
        self._skipped.clear()
        if self._correction is not None:
            self._correction.forget()
        self._computed = self._in_a_row = 0

    def next_slot(self) -> int:
        """Return the number of the next call for passes among those of an evaluation: its slot."""
        self._slot += 1
        return self._slot - 1

    def can_forecast(self, slot: int, present: Sequence[bool]) -> bool:
        """Return whether the passes of a call can be forecast. Where an evaluation has other ones, all begins anew."""
        possible = self.decision is Decision.FORECAST and self._passes.can(self.method, slot, present)
        if self.decision is Decision.FORECAST and slot == 0 and not possible:
            self._forget()
            self.decision = Decision.COMPUTE
        return possible

    def forecast(self, slot: int, latent: Tensor) -> list[Tensor]:
        """Return the forecast of each pass, in the dtype of ``latent``; zeros for those that are not there."""
        return self._passes.forecast(self.method, slot, self.place, latent)

    def keep(self, slot: int, latent: Tensor, outputs: Sequence[Tensor | None]) -> None:
        """Remember what the passes of a call gave; None for those that are not there."""
        if self.too_short:
            return
        same = slot == 0 and self._latent is not None and self._latent.shape == latent.shape
        kept = self._latent if same and self._latent is not None else latent.float().clone()
        self._passes.keep(slot, self.place, kept, outputs)
        if self._first is None and outputs[0] is not None:
            self._first = outputs[0].float().clone()
        if slot == 0 and self.guidance_scale is not None and self.decision is Decision.COMPUTE:
            change = self._passes.keep_difference(self.place, outputs)
            if change is not None:
                self._unread.append((GUIDANCE, change[0], change[1] * abs(self.guidance_scale - 1.0)))

    def negative_from(self, positive: Tensor) -> Tensor:
        """Return the negative pass as the positive one less the last difference."""
        return self._passes.negative_from(positive)

    def end(self, guided: Tensor) -> Tensor:
        """Take note of the guided prediction, ``[batch, ...]``: test the forecasts on it if it was computed.

        Returns:
            What the solver shall be given: the prediction, corrected for what forecasts before it did to the latent.
        """
        outcome = self.outcome
        if self.decision is Decision.FORECAST:
            outcome.forecast += 1
            outcome.methods[self.method] = outcome.methods.get(self.method, 0) + 1
            self._in_a_row += 1
            guess = guided.float().clone()
            self._skipped.append((self.place, guess))
            return self._given(guess, None).to(guided.dtype)
        if self.too_short:
            outcome.computed += 1
            return guided
        assert self._latent is not None, "begin() comes first"
        found = Evaluation(self.place, self._latent, guided.float().clone())
        if self.decision is Decision.GUIDANCE:
            outcome.guidance += 1
        else:
            outcome.computed += 1
            self._test(found)
        given = self._given(found.denoised, self._settle(found))
        self._guided.add(found.place, found.latent, found.denoised)
        self._computed, self._in_a_row = self._computed + 1, 0
        outcome.bytes = max(outcome.bytes, self._bytes())
        return guided if given is found.denoised else given.to(guided.dtype)

    def _test(self, found: Evaluation) -> None:
        """Hold what each forecast would have said against what was computed."""
        if self._first is not None:
            self._unread.append((SEEDS, found.place.sigma, rms(found.denoised - self._first)))
        for name in self._candidates:
            if self._guided.can(FORECASTS[name]):
                distance = found.place.position - self._guided.newest.place.position
                guess = self._guided.forecast(name, found.place, found.latent)
                self._unread.append((name, distance, rms(guess - found.denoised)))

    def _settle(self, found: Evaluation) -> Tensor | None:
        """Work out from both sides what was skipped; return how far the latent is off, where that can be taken back."""
        if not self._skipped:
            return None
        better = [self._guided.between(place, found, self._order) for place, _ in self._skipped]
        for (place, guess), known in zip(self._skipped, better, strict=True):
            self._unread.append((SKIPPED, 0.0, rms(guess - known).mul_(place.weight)))
        self._skipped.clear()
        return None if self._correction is None else self._correction.take_back(found.place, found.latent, better)

    def _given(self, prediction: Tensor, off: Tensor | None) -> Tensor:
        """Return what the solver is given in place of a prediction."""
        if self._correction is None or self._latent is None:
            return prediction
        return self._correction.given(self.place, self._latent, prediction, off)

    def _read(self) -> None:
        """Read what was measured since the last time: one transfer."""
        if not self._unread:
            return
        rows: list[Distances] = torch.stack([measured for _, _, measured in self._unread]).tolist()
        for (name, value, _), row in zip(self._unread, rows, strict=True):
            if name == SEEDS:
                self.budget.measure_seeds(row, value)
            elif name == SKIPPED:
                self.budget.settle(row)
            elif name == GUIDANCE:
                self._guidance_rate.test(value, row)
            elif name in self._rates:
                self._rates[name].test(value, row)
                if name in self.outcome.methods:
                    self.outcome.largest = max(self.outcome.largest, self.budget.share(row))
        self._unread.clear()
        self.outcome.share = self.budget.used

    def close(self) -> None:
        """The run is over: read the last numbers, and let go of all tensors."""
        self._read()
        self._forget()
        self._first = self._latent = None

    def _bytes(self) -> int:
        shared = sum(entry.latent.nbytes for entry in self._guided.evaluations)
        return shared + self._guided.bytes() + self._passes.bytes()
