"""Ways to forecast a network's output from earlier ones: weights for them, so that a test of a forecast is free.

Two quantities are in use: the prediction of the picture without noise (``denoised``, D), and that of the noise
(``noise``, (x - D) / sigma). Positions are numbers of steps; 3.5 lies between the fourth and the fifth noise level.
With differences of the outputs as derivatives, TaylorSeer's first order (arXiv 2503.06923) and FoCa's predictor with
its corrector (arXiv 2508.16211) are ``linear``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DENOISED, NOISE = "denoised", "noise"


@dataclass(frozen=True)
class Forecast:
    """A polynomial through the last ``points`` evaluations; its error grows with the distance to this power."""

    quantity: str
    points: int


def lagrange(positions: Sequence[float], target: float) -> list[float]:
    """Return the weights of the polynomial through all points."""
    weights = []
    for here in positions:
        weight = 1.0
        for other in positions:
            if other != here:
                weight *= (target - other) / (here - other)
        weights.append(weight)
    return weights


FORECASTS = {
    "hold": Forecast(DENOISED, 1),
    "hold_noise": Forecast(NOISE, 1),
    "linear": Forecast(DENOISED, 2),
    "linear_noise": Forecast(NOISE, 2),
}
"""All forecasts by name. ``auto`` chooses by the error that each would have had in the computed steps."""
