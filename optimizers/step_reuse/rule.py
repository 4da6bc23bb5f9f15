"""What the two rules of a run have in common: the contract with a host, and how a run is followed. torch only.

For each evaluation of the guided prediction::

    skips = rule.begin(place)
    guided = ...                                # rule.forecast(latent) where it skips, else computed by the host
    rule.first_pass(positive)                   # where the host sees the passes
    given = rule.end(latent, guided)            # this goes to the solver

``long_rule.py`` and ``short_rule.py`` decide what is left out. Where a sampler goes otherwise than down its schedule
with one latent (``path.py``), the rest of the run is computed. A host that must forecast the passes one by one,
because other code reads them, keeps them in ``Passes``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from ..models.samplers import Place, calibration_of, sampler_of
from .budget import KEPT, SEEDS, Budget, Distances, Outcome, Skip, Unread
from .correction import Correction
from .history import Evaluation, History
from .parts import Blend, Split, contrast, rms, stream_rms, undivided
from .path import off_path
from .reuse_settings import StepReuseSettings

WARM_UP = 3
"""How many evaluations at the start are always computed: two for a forecast, one to test it."""

MOST_STRANGE = 0.5
"""If other code changed more than this share of the latent since the solver's step, the step is unknown: noise changes
all of it, masks less."""

NOISY = 4.0
"""Above this noise a prediction is about the mean of all pictures. What changes there foretells nothing below: of zero
terminal signal a prediction then changed 4 to 9 times as much as told, elsewhere 0.9 to 1.5 times. And of an error only
the part ``NOISY / noise`` lasts. Not seen with flow matching."""

LONGEST_STEP, LONGER = 2.0, 3.0
"""A solver of second order carries an error of earlier predictions too far over a step to so many times e less noise,
or so many times as long as the one before. Where ``normal`` jumps to the least noise, two to three times the error."""

FAINTEST = 1e-3
"""The least share of the picture in a latent of a flow: at the first noise level there is none of it."""


class Rule(ABC):
    """Decides about each evaluation of a run, and books the skipped ones.

    ``noise_levels`` are those of the schedule, the last one included, from high to low; ``solver`` is ComfyUI's name of
    it, if known; ``flow``: whether the latent is ``(1 - sigma) * picture + sigma * noise``, else ``picture + sigma *
    noise``; ``split``: into the parts of a latent that are judged one by one.

    Attributes:
        outcome: counts and measures so far.
        skip: how the evaluation that goes on is left out; None if it is computed.
        aside: whether the rule has stepped aside: all is computed, and nothing need be kept.
    """

    few: ClassVar[bool]  # whether this is the rule of few steps
    account: ClassVar[type[Budget]]

    def __init__(
        self,
        settings: StepReuseSettings,
        noise_levels: Sequence[float],
        solver: str | None = None,
        flow: bool = False,
        split: Split = undivided,
    ) -> None:
        calibration, measured = calibration_of(solver, flow)
        self.outcome = Outcome(len(noise_levels) - 1, measured=measured, few=self.few, flow=flow)
        self.budget = self.account(settings.budget, calibration)
        self._split = split
        self._levels = list(noise_levels)
        sampler = sampler_of(solver)
        self._correction = None if sampler.update is None else Correction(sampler.update)
        noises = [max(self._noise(level), 1e-9) for level in self._levels[:-1]]
        steps = enumerate(pairwise([math.inf, *(math.log(here / ahead) for here, ahead in pairwise(noises))]))
        self._order, self._once = sampler.order, sampler.once_a_step
        self._leaps = [n for n, (last, step) in steps if sampler.order > 1 and step > min(LONGEST_STEP, LONGER * last)]
        self._last: Place | None = None
        self.aside = self.partly = False
        self._first: Tensor | None = None
        self._share: Tensor | None = None
        self._lasting: Tensor | None = None
        self.unread, self._soft = Unread(), 0.0
        self.place = self.place_of(self._levels[0])
        self.forget()

    @abstractmethod
    def skip_at(self, place: Place) -> Skip | None:
        """Return how an evaluation can be left out within the budget; None if not. To ask leaves nothing out."""

    @abstractmethod
    def _learn(self, found: Evaluation) -> Tensor | None:
        """Note what a computed evaluation tells; return the latent's error behind forecasts, if it is corrected."""

    @abstractmethod
    def solver_unknown(self) -> None:
        """The solver does more than its update, it adds noise for example."""

    def forget(self) -> None:
        """Start anew, because the prompts or networks in use changed: earlier outputs say nothing about later ones."""
        self.read()
        self._guided = History()
        self._skipped: list[tuple[Place, Tensor]] = []
        if self._correction is not None:
            self._correction.forget()
        self._computed = 0
        self.skip: Skip | None = None

    @property
    def skips(self) -> bool:
        return self.skip is not None

    @property
    def method(self) -> str:
        """The forecast of the evaluation that goes on; "" if it is computed."""
        return "" if self.skip is None else self.skip.method

    def place_of(self, sigma: float) -> Place:
        return Place.among(self._levels, sigma)

    def begin(self, place: Place) -> bool:
        """Go to an evaluation; return whether it is forecast. Nothing is spent before its end."""
        if why := off_path(self._last, place, self._once):
            self.step_aside(why)
        self.place, self.partly = place, False
        self.skip = self.skip_at(place)
        return self.skips

    def step_aside(self, reason: str) -> None:
        """Compute the rest of the run, because the rule cannot follow it."""
        if not self.aside:
            self.forget()
            self.aside = True
            self.outcome.note(f"{reason}: Reuse Steps is off for the rest of the run")

    def compute(self, some: bool = False) -> None:
        """The network is asked in an evaluation that was to be forecast; ``some``: for a part of it only."""
        self.partly, self.skip = some, self.skip if some else None

    def _noise(self, sigma: float) -> float:
        """Return the noise level of a latent in which the picture has its own size."""
        return sigma / max(1.0 - sigma, FAINTEST) if self.outcome.flow else sigma

    def _weight(self, place: Place) -> float:
        """Return how far an error of the denoised prediction moves such a latent in one step, and lasts.

        In solvers that look at several evaluations it is the sum over all steps, to first order.
        """
        lasting = 1.0 if self.outcome.flow else NOISY / max(place.sigma, NOISY)
        return lasting * (1.0 - self._noise(place.ahead) / self._noise(place.sigma)) if place.sigma > 0 else 1.0

    def forecast(self, latent: Tensor) -> Tensor:
        """Return the forecast of the guided prediction, float32, of the shape of ``latent``."""
        return self._guided.forecast(self.method, self.place, latent)

    def first_pass(self, positive: Tensor) -> None:
        """Note a positive pass: the run's first one, from noise alone, is the mean picture."""
        if self._first is None:
            self._first = positive.float().clone()

    def end(self, latent: Tensor, guided: Tensor, blend: Blend | None = None) -> Tensor:
        """Note the guided prediction; return the prediction for the solver, corrected for forecasts before it.

        ``latent``: the network's input, float32, ``[batch, ...]``; it must not change any more. ``blend``: what becomes
        of the prediction before the solver reads it.
        """
        self.outcome.count("" if self.partly else self.method)
        if self.skip is not None:
            self.budget.spend(self.skip.cost, round(self.place.position))
        if self.aside:
            return guided
        self._last = self.place
        if blend is not None:
            self._share, self._lasting = blend.share, blend.lasting(self.place, self._levels, self._noise)
            self.unread.add(self._found_soft, blend.soft())
        if self._correction is not None and not self._correction.leads_to(self.place):
            self.solver_unknown()
        if self._correction is not None:
            eps = torch.finfo(torch.bfloat16 if self.few else guided.dtype).eps  # some hosts keep latents in half
            if (strangers := self._correction.strangers(latent, eps)) is not None:
                self.unread.add(self._found_strange, strangers)
        if self.skip is not None:
            guess = guided.float().clone()
            self._skipped.append((self.place, guess))
            return self._given(latent, guess).to(guided.dtype)
        found = Evaluation(self.place, latent, guided.float().clone())
        self._measure_seeds(found, blend)
        given = self._given(latent, found.denoised, self._learn(found))
        self._skipped.clear()
        self._guided.add(found)
        self._computed += 1
        return guided if given is found.denoised else given.to(guided.dtype)

    def _found_soft(self, part: Distances) -> None:
        self._soft = part[0]

    def _found_strange(self, part: Distances) -> None:
        if part[0] > MOST_STRANGE:
            self.solver_unknown()

    def _measure_seeds(self, found: Evaluation, blend: Blend | None) -> None:
        if self._first is None:
            self._first = found.denoised
        sigma, own = found.place.sigma, contrast(self._split(found.denoised)) * (blend is None)
        change = stream_rms(self._split(self._shared(self._strayed(found.denoised, self._first))))
        if blend is not None:
            from_kept = stream_rms(self._split(self._shared(found.denoised - blend.kept)))
            change, sigma = torch.minimum(change, from_kept * (KEPT / SEEDS)), 0.0
        self.outcome.parts = len(change) // len(found.denoised)
        self.unread.add(partial(self.budget.measure_seeds, sigma=self._noise(sigma)), torch.cat([change, own]))

    @staticmethod
    def _strayed(denoised: Tensor, mean: Tensor) -> Tensor:
        """Return how far predictions are from the first ones, of which distilled guidance makes multiples of a mean."""
        first, now = mean.flatten(1), denoised.flatten(1)
        share = ((first * now).sum(1) / first.square().sum(1).clamp(min=1e-12)).clamp(0.0, 1.0)
        return denoised - mean * share.view(-1, *[1] * (denoised.ndim - 1))

    def _shared(self, difference: Tensor) -> Tensor:
        return difference if self._lasting is None else difference * self._lasting

    def _rms(self, difference: Tensor) -> Tensor:
        return rms(self._split(self._shared(difference)))

    def _given(self, latent: Tensor, prediction: Tensor, off: Tensor | None = None) -> Tensor:
        known = self._correction
        return prediction if known is None else known.given(self.place, latent, prediction, off, self._share)

    def read(self) -> None:
        """Read all new measures in one transfer; a host also calls it when the run is over."""
        if not self.unread.read():
            return
        if math.isfinite(self.budget.used):
            self.outcome.share = self.budget.used
        else:
            self.outcome.note("the network's predictions are not finite, so nothing could be measured any more")
