"""What each pass of the network said: positive, negative and whatever a guider asks for beside them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .budget import rms
from .forecasts import FORECASTS
from .history import History, Place


class Passes:
    """The histories of all passes of a run. A slot is the place of a call for passes among those of an evaluation."""

    def __init__(self) -> None:
        self._slots: list[list[History | None]] = []
        self._difference: tuple[float, Tensor] | None = None

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
        """Remember what the passes of a call gave; None for those that are not there. ``latent`` is float32."""
        while len(self._slots) <= slot:
            self._slots.append([])
        histories = self._slots[slot]
        if [history is not None for history in histories] != [output is not None for output in outputs]:
            histories[:] = [None if output is None else History() for output in outputs]
        for history, output in zip(histories, outputs, strict=True):
            if history is not None and output is not None:
                history.add(place, latent, output.float().clone())

    @property
    def difference_at(self) -> float | None:
        """Where the difference between the positive and the negative pass was computed last; None if never."""
        return None if self._difference is None else self._difference[0]

    def keep_difference(self, place: Place, outputs: Sequence[Tensor | None]) -> tuple[float, Tensor] | None:
        """Remember the difference between two passes.

        Returns:
            How many steps ago it was computed before, and how much it has changed since, ``[batch]``; None at first.
        """
        if len(outputs) != 2 or outputs[0] is None or outputs[1] is None:
            return None
        before, difference = self._difference, outputs[0].float() - outputs[1].float()
        self._difference = (place.position, difference)
        return None if before is None else (place.position - before[0], rms(difference - before[1]))

    def negative_from(self, positive: Tensor) -> Tensor:
        """Return the negative pass as the positive one less the last difference."""
        assert self._difference is not None, "difference_at says whether there is one"
        return positive - self._difference[1].to(positive.dtype)

    def bytes(self) -> int:
        """Return the memory of what is kept, without latents, which others hold too."""
        return sum(history.bytes() for slot in self._slots for history in slot if history is not None)
