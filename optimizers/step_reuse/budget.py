"""How far the final latent has moved by now, and whether one more skip keeps it inside of the budget.

Every computed step is a test: what each forecast would have said there is held against what the network says. An error
of the denoised prediction moves the latent by its share in the solver's update (``Place.weight``). Once the next step
was computed, what the network would have said in a skipped one is known much better, from both sides; so the running
sum is one of estimated errors as tensors, in which errors that cancel do so.

All distances are root mean squares over one item of the batch; the worst item decides. They are held against what
another seed would change, which the run shows itself: the first prediction, from noise alone, is the mean of all
pictures of this prompt, and two pictures are as far apart as ``SEEDS`` says. The constants were measured: see
benchmarks/step_reuse.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

CALIBRATIONS = {"euler": 1.0, "dpmpp_2m": 1.7, "heun": 0.3}
"""Distance of the final latent for each unit of the sum of weighted errors, by solver."""

CALIBRATION = 5.0
"""The same for solvers in which nothing is taken back."""

SEEDS = math.sqrt(2) / 3
"""How far two seeds are apart for each unit of a picture's distance from the mean of all pictures.

For independent pictures it is sqrt(2). The first prediction is blurred by guidance and by what all pictures of a prompt
share; on a trained model of icons another seed changes a third of that.
"""

PRIOR = 0.5
"""What is assumed of how far pictures are apart while noise still hides it; latents are scaled to about 1."""

NEAREST = 0.3
"""Errors at smaller distances than this part of a step are taken for those at it."""

Distances = list[float]
"""One number for each item of the batch."""


def rms(difference: Tensor) -> Tensor:
    """Return the root mean square of each item, ``[batch]``, of ``[batch, ...]``."""
    return difference.flatten(1).square().mean(1).sqrt()


class ErrorRate:
    """How fast the error of one forecast grows with the distance, from its last tests.

    Args:
        order: the error grows with the distance to the power of ``order + 1``.
    """

    def __init__(self, order: int) -> None:
        self._power = order + 1
        self._rates: list[Distances] = []

    def test(self, distance: float, errors: Distances) -> None:
        """Note the errors that a forecast over ``distance`` steps would have had."""
        scale = max(distance, NEAREST) ** self._power
        self._rates = [*self._rates[-1:], [error / scale for error in errors]]

    @property
    def known(self) -> bool:
        """Whether there was a test."""
        return bool(self._rates)

    def expected(self, distance: float) -> Distances:
        """Return the errors to expect: the worse of the last two rates."""
        scale = max(distance, NEAREST) ** self._power
        return [max(rates) * scale for rates in zip(*self._rates, strict=True)]


class Budget:
    """The account of one run.

    Args:
        limit: how far the picture may move, as a share of what another seed changes.
        calibration: distance of the final latent for each unit of the sum of errors.

    Attributes:
        moved: what is known of the steps that were skipped, as the norm of its sum.
        pending: what is expected of those that were skipped since the last computed step.
        kept: what is expected of those that are never known better.
    """

    def __init__(self, limit: float, calibration: float = CALIBRATION) -> None:
        self.limit = limit
        self._calibration = calibration
        self.moved: Distances = []
        self.pending: Distances = []
        self.kept: Distances = []
        self._seeds: Distances = []

    def measure_seeds(self, change: Distances, sigma: float) -> None:
        """Note how far the predictions have come from the first one, at a noise level."""
        hidden = PRIOR * min(sigma, 1.0)
        self._seeds = [SEEDS * math.hypot(value, hidden) for value in change]

    def share(self, distances: Sequence[float]) -> float:
        """Return the worst item's distance as a share of what another seed changes; 0 before anything is known."""
        pairs = zip(distances, self._seeds, strict=False)
        return max((distance / max(seeds, 1e-12) for distance, seeds in pairs), default=0.0)

    @property
    def used(self) -> float:
        """The estimate for what was skipped so far."""
        return self.share(self._total) * self._calibration

    @property
    def _total(self) -> Distances:
        return _added(_added(self.moved, self.pending), self.kept)

    def allows(self, cost: Distances, progress: float) -> bool:
        """Return whether one more skip stays inside of what is allowed until this part of the schedule."""
        return self.share(_added(self._total, cost)) * self._calibration <= self.limit * (1 + progress) / 2

    def spend(self, cost: Distances, for_good: bool = False) -> None:
        """Book a skip at its expected error; until it is known better, or ``for_good`` if it never will be."""
        if for_good:
            self.kept = _added(self.kept, cost)
        else:
            self.pending = _added(self.pending, cost)

    def settle(self, moved: Distances) -> None:
        """Replace what was booked by what is known now."""
        self.moved, self.pending = moved, []


def _added(first: Distances, second: Distances) -> Distances:
    if not first or not second:
        return first or second
    return [a + b for a, b in zip(first, second, strict=True)]
