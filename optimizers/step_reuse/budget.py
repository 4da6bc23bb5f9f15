"""How far the final latent has moved by now, and whether one more skip keeps it inside of the budget.

Every computed step tests each forecast. An error of the denoised prediction moves the latent by its share in the
solver's update (``Place.weight``); once the next step was computed, a skipped one is known much better, from both
sides. Errors of different steps point into different directions, so their squares are added.

Distances are root mean squares over the parts (``parts.py``) of each item of the batch; the worst decides. They are
held against what another seed would change: the positive pass' first prediction, from noise alone, is the mean of all
pictures of the prompt, and two pictures are ``SEEDS`` times as far apart as one is from it. The constants were
measured: see benchmarks/step_reuse.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Calibration:
    """How far the final latent is for a sum of errors, ``factor * sum ** power``, as shares of what a seed changes.

    Where errors are taken back, what stays is what the better values do not know and what the network said about a
    latent that was off, which grows faster than the errors: ``power`` is 1 or more. ``margin`` is kept in hand: of ten
    runs, one or two are more than twice as far off as estimated.
    """

    factor: float
    power: float = 1.0
    margin: float = 2.0

    def distance(self, errors: float) -> float:
        return float(self.factor * errors**self.power)


CALIBRATIONS = {
    "euler": Calibration(1.6, 1.5, 2.5),
    "dpmpp_2m": Calibration(0.7),
    "euler_ancestral": Calibration(1.8),
    "heun": Calibration(0.5, margin=2.5),
    "uni_pc": Calibration(0.65, margin=2.5),
    "res_multistep": Calibration(0.7, margin=2.5),
    "deis": Calibration(1.5),
    "lms": Calibration(1.0),
    "gradient_estimation": Calibration(0.7, margin=3.5),
    "er_sde": Calibration(1.2, margin=2.75),
    "dpmpp_2m_sde": Calibration(1.6, margin=1.1),
    "dpmpp_3m_sde": Calibration(2.0, margin=1.65),
}
"""Measured on a UNet for each solver, by ComfyUI's names, with ``benchmarks/step_reuse_constants.py``."""

CALIBRATION = Calibration(3.0)
"""For other solvers: ``ipndm`` needs it, and it is too careful for most."""

TRANSFORMER_CALIBRATIONS = {
    "euler": Calibration(1.1, margin=4.5),
    "dpmpp_2m": Calibration(1.1, margin=2.5),
    "res_multistep": Calibration(1.0, margin=2.5),
}
"""The same on one small transformer (option ``--transformer``)."""

TRANSFORMER_CALIBRATION = Calibration(3.0, margin=2.5)
"""For other solvers there. Of eight that were tried, ``dpmpp_2m_sde`` needs most, 1.6."""

SEEDS = math.sqrt(2)
"""How far two pictures of a prompt are apart for each unit of one's distance from the mean of all."""

PRIOR = 0.15
"""What is assumed of that distance while noise still hides it; latents are scaled to about 1."""

NEAREST = 0.3
"""Errors at smaller distances than this part of a step are taken for those at it."""


def calibration_of(solver: str | None, unet: bool) -> tuple[Calibration, bool]:
    """Return the constants for a solver on a UNet or another network, and whether they were measured with it."""
    known, other = (CALIBRATIONS, CALIBRATION) if unet else (TRANSFORMER_CALIBRATIONS, TRANSFORMER_CALIBRATION)
    name = (solver or "").removesuffix("_gpu")  # where the noise is made
    return known.get(name, other), name in known


Distances = list[float]
"""One number for each part of each item of the batch."""


class ErrorRate:
    """How fast the error of one forecast grows, from its last tests: with which ``power`` of the distance is known."""

    def __init__(self, power: int) -> None:
        self._power = power
        self._rates: list[Distances] = []

    def test(self, distance: float, errors: Distances) -> None:
        scale = max(distance, NEAREST) ** self._power
        self._rates = [*self._rates[-1:], [error / scale for error in errors]]

    @property
    def known(self) -> bool:
        return bool(self._rates)

    def expected(self, distance: float) -> Distances:
        """Return the errors to expect: the worse of the last two rates."""
        scale = max(distance, NEAREST) ** self._power
        return [max(rates) * scale for rates in zip(*self._rates, strict=True)]


class Budget:
    """The account of one run; ``limit``: how far the picture may move, as a share of what another seed changes."""

    def __init__(self, limit: float, calibration: Calibration = CALIBRATION) -> None:
        self.limit = limit
        self.calibration = calibration
        self._settled: Distances = []
        self._pending: Distances = []
        self._kept: Distances = []
        self._seeds: Distances = []

    def measure_seeds(self, change: Distances, sigma: float) -> None:
        """Note how far the predictions have come from the first one, at a noise level."""
        hidden = PRIOR * min(sigma, 1.0)
        self._seeds = [SEEDS * math.hypot(value, hidden) for value in change]

    def share(self, distances: Sequence[float]) -> float:
        """Return the worst part's distance as a share of what another seed changes; 0 before anything is known."""
        pairs = zip(distances, self._seeds, strict=False)
        return max((distance / max(seeds, 1e-12) for distance, seeds in pairs), default=0.0)

    @property
    def used(self) -> float:
        return self._share_of(self._pending)

    def _share_of(self, pending: Distances) -> float:
        total = [math.sqrt(square) for square in _added(_added(self._settled, pending), self._kept)]
        return self.calibration.distance(self.share(total))

    def allows(self, cost: Distances, part: float) -> bool:
        """Return whether one more skip stays inside of a part of the budget, with the solver's margin kept in hand."""
        distance = self._share_of(_added(self._pending, _squares(cost)))
        return self.limit > 0 and distance * self.calibration.margin <= self.limit * part

    def spend(self, cost: Distances, for_good: bool = False) -> None:
        """Book a skip at its expected error; until it is known better, or ``for_good`` if it never will be."""
        if for_good:
            self._kept = _added(self._kept, _squares(cost))
        else:
            self._pending = _added(self._pending, _squares(cost))

    def settle(self, errors: Distances) -> None:
        """Replace what was expected of the last skips by the error that one of them is known to have had by now."""
        self._settled, self._pending = _added(self._settled, _squares(errors)), []


def _squares(distances: Distances) -> Distances:
    return [distance * distance for distance in distances]


def _added(first: Distances, second: Distances) -> Distances:
    if not first or not second:
        return first or second
    return [a + b for a, b in zip(first, second, strict=True)]
