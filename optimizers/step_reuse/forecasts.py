"""Ways to forecast a network's output from earlier ones; each is a list of weights, so that a test of it is free.

A forecast is a weighted sum of a quantity at earlier evaluations. Two quantities are in use: the prediction of the
picture without noise (``denoised``, D), and that of the noise, (x - D) / sigma (``noise``). Positions are numbers of
steps, which is how the solver sees the schedule: 3.5 lies between the fourth and the fifth noise level.

Polynomials through the last points are what TaylorSeer (arXiv 2503.06923) and FoCa (arXiv 2508.16211) come to when
the derivatives are differences of the outputs themselves: TaylorSeer's first order and FoCa's predictor with its
corrector are ``linear`` then. Spectrum (arXiv 2603.01623) fits Chebyshev polynomials to all points by ridge regression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

Weights = Callable[[Sequence[float], float], list[float]]
"""From the positions of earlier evaluations, oldest first, and a later one to the weight of each."""

DENOISED, NOISE = "denoised", "noise"


@dataclass(frozen=True)
class Forecast:
    """One way to forecast.

    Attributes:
        name: as in settings and plans.
        quantity: ``denoised`` or ``noise``.
        points: how many earlier evaluations it needs at least.
        weights: see ``Weights``; given the last ``most`` evaluations.
        most: how many it looks at.
        order: the error grows with the distance to the power of ``order + 1``.
    """

    name: str
    quantity: str
    points: int
    weights: Weights
    most: int
    order: int


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


def taylor(positions: Sequence[float], target: float) -> list[float]:
    """Return the weights of a Taylor series of second order; derivatives are backward differences (TaylorSeer)."""
    first, second, third = positions
    step, before, ahead = third - second, second - first, target - third
    # slope = (c - b) / step; curvature = (slope - (b - a) / before) / step
    curve = ahead * ahead / 2 / step
    return [curve / before, -ahead / step - curve / step - curve / before, 1 + ahead / step + curve / step]


def chebyshev(positions: Sequence[float], target: float, degree: int = 3, ridge: float = 0.1) -> list[float]:
    """Return the weights of a ridge regression on Chebyshev polynomials (Spectrum)."""
    start, extent = positions[0], max(target - positions[0], 1e-9)
    points = torch.tensor([*positions, target], dtype=torch.float64).sub(start).div(extent).mul(2).sub(1)
    columns = [torch.ones_like(points), points]
    while len(columns) <= degree:
        columns.append(2 * points * columns[-1] - columns[-2])
    basis = torch.stack(columns, 1)  # [points + 1, degree + 1]
    known = basis[:-1]
    gram = known.T @ known + ridge * torch.eye(degree + 1, dtype=torch.float64)
    found: list[float] = (basis[-1] @ torch.linalg.solve(gram, known.T)).tolist()
    total = sum(found)  # the ridge also shrinks the constant: a picture that does not change must be forecast as it is
    return [weight / total for weight in found]


FORECASTS = {
    forecast.name: forecast
    for forecast in (
        Forecast("hold", DENOISED, 1, lambda _, __: [1.0], 1, 0),
        Forecast("hold_noise", NOISE, 1, lambda _, __: [1.0], 1, 0),
        Forecast("linear", DENOISED, 2, lagrange, 2, 1),
        Forecast("linear_noise", NOISE, 2, lagrange, 2, 1),
        Forecast("quadratic_noise", NOISE, 3, lagrange, 3, 2),
        Forecast("taylor", DENOISED, 3, taylor, 3, 2),
        Forecast("chebyshev", DENOISED, 4, chebyshev, 6, 1),
    )
}
"""All forecasts by name."""

AUTOMATIC = ("hold", "hold_noise", "linear", "linear_noise")
"""Those that ``auto`` chooses from, by what each would have said in the steps that were computed."""
