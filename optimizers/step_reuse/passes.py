"""Outputs of each pass of the network, for hosts where other code reads single passes: each is forecast by itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .forecasts import FORECASTS
from .history import Evaluation, History, Place


class Passes:
    """The histories of all passes of a run. A slot is the place of a call for passes among those of an evaluation."""

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

    def bytes(self) -> int:
        """Return the memory of the kept outputs; latents are held elsewhere too."""
        return sum(history.bytes(latents=False) for slot in self._slots for history in slot if history is not None)
