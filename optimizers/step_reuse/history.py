"""The network's outputs in earlier evaluations, and forecasts made of them: weights, so that a test of one is free.

Two quantities are in use: the prediction of the picture without noise (``denoised``, D), and that of the noise
(``noise``, (x - D) / sigma). Positions are numbers of steps; 3.5 lies between the fourth and the fifth noise level.
With differences of the outputs as derivatives, TaylorSeer's first order (arXiv 2503.06923) and FoCa's predictor with
its corrector (arXiv 2508.16211) are ``linear``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..models.samplers import Place


@dataclass(frozen=True)
class Forecast:
    """A polynomial through the last ``points`` evaluations, whose error grows with the distance to this power.

    ``noise``: of the predictions of the noise.
    """

    noise: bool
    points: int


def lagrange(positions: Sequence[float], target: float) -> list[float]:
    """Return the weights of the polynomial through all points."""
    return [prod((target - other) / (here - other) for other in positions if other != here) for here in positions]


FORECASTS = {
    "hold": Forecast(False, 1),
    "hold_noise": Forecast(True, 1),
    "linear": Forecast(False, 2),
    "linear_noise": Forecast(True, 2),
}
"""All forecasts by name. The rule chooses by the error that each would have had in the computed steps."""

KEPT = max(forecast.points for forecast in FORECASTS.values())
"""How many evaluations are kept: as many as the widest forecast needs."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: ``latent`` (the network's input, with noise) and ``denoised``, both float32 and of one shape."""

    place: Place
    latent: Tensor
    denoised: Tensor


class History:
    """The last evaluations of one pass, or of the guided prediction; oldest first."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []

    def __len__(self) -> int:
        return len(self.evaluations)

    @property
    def newest(self) -> Evaluation:
        return self.evaluations[-1]

    def add(self, found: Evaluation) -> None:
        """Remember an evaluation. One at the same place takes the place of the one before."""
        if self.evaluations:
            if found.denoised.shape != self.newest.denoised.shape:
                self.evaluations.clear()
            elif found.place.position - self.newest.place.position < 1e-4:
                self.evaluations.pop()
        self.evaluations.append(found)
        del self.evaluations[:-KEPT]

    def can(self, forecast: Forecast) -> bool:
        return len(self) >= forecast.points

    def forecast(self, name: str, place: Place, latent: Tensor) -> Tensor:
        """Return a forecast of the denoised prediction, float32, of the shape of ``latent``, the input at ``place``."""
        forecast = FORECASTS[name]
        used = self.evaluations[-forecast.points :]
        if not forecast.noise:
            return _on_polynomial(used, place)
        total = latent.float().clone()
        weights = lagrange([entry.place.position for entry in used], place.position)
        for weight, entry in zip(weights, used, strict=True):
            share = weight * place.sigma / entry.place.sigma
            total.sub_(entry.latent, alpha=share).add_(entry.denoised, alpha=share)
        return total

    def between(self, place: Place, after: Evaluation, order: int) -> Tensor:
        """Return the network's output between the newest evaluation and ``after``, which was computed.

        It is on the polynomial of an order through ``after`` and the last evaluations.
        """
        return _on_polynomial([*self.evaluations[-order:], after], place)


class Passes:
    """The histories of all passes of a run, where other code reads single passes: each is forecast by itself.

    A slot is the place of a call for passes among those of an evaluation.
    """

    def __init__(self) -> None:
        self._slots: list[list[History | None]] = []

    def can(self, method: str, slot: int, present: Sequence[bool]) -> bool:
        """Return whether the passes of a call can be forecast: the same ones were computed often enough."""
        if slot >= len(self._slots):
            return False
        histories = self._slots[slot]
        return [history is not None for history in histories] == list(present) and all(
            history is None or history.can(FORECASTS[method]) for history in histories
        )

    def forecast(self, method: str, slot: int, place: Place, latent: Tensor) -> list[Tensor]:
        """Return the forecast of each pass, in the dtype of ``latent``; zeros for those that are not there."""
        return [
            torch.zeros_like(latent) if history is None else history.forecast(method, place, latent).to(latent.dtype)
            for history in self._slots[slot]
        ]

    def keep(self, slot: int, place: Place, latent: Tensor, outputs: Sequence[Tensor | None]) -> None:
        """Keep the outputs of the passes of a call; None for those that are not there. ``latent`` is float32."""
        while len(self._slots) <= slot:
            self._slots.append([])
        histories = self._slots[slot]
        if [history is not None for history in histories] != [output is not None for output in outputs]:
            histories[:] = [None if output is None else History() for output in outputs]
        for history, output in zip(histories, outputs, strict=True):
            if history is not None and output is not None:
                history.add(Evaluation(place, latent, output.float().clone()))


def _on_polynomial(known: Sequence[Evaluation], place: Place) -> Tensor:
    weights = lagrange([entry.place.position for entry in known], place.position)
    total = known[-1].denoised * weights[-1]
    for weight, entry in zip(weights[:-1], known[:-1], strict=True):
        total.add_(entry.denoised, alpha=weight)
    return total
