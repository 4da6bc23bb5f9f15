"""The times at which a run's steps ended, without waiting for the device after each.

Waiting would make every step pay for what the processor does while a GPU computes, and hide what techniques save there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...core.devices import synchronize

Clock = Callable[[], float]
"""Returns seconds."""


class StepTimes:
    """The ends of the steps of one run.

    ``clock`` is for devices whose work cannot be marked; ``mark`` marks it as a recorded ``torch.cuda.Event`` does.
    """

    def __init__(self, device: torch.device, clock: Clock, mark: Callable[[], Any] | None = None) -> None:
        self._device, self._clock = device, clock
        self._mark = mark or _events_of(device)
        self._seconds: list[float] = []
        self._marks: list[Any] = []

    def step(self) -> None:
        """Note that the work of a step was given to the device; waits for it only where nothing can be marked."""
        if self._mark is not None:
            self._marks.append(self._mark())
            return
        synchronize(self._device)
        self._seconds.append(self._clock())

    @property
    def steps(self) -> int:
        return len(self._marks or self._seconds)

    def mean(self) -> float | None:
        """Return the mean seconds of all steps but the first; None for one step. The device must have done them."""
        later = self.steps - 1
        if later < 1:
            return None
        if self._marks:
            milliseconds: float = self._marks[0].elapsed_time(self._marks[-1])
            return milliseconds / 1000 / later
        return (self._seconds[-1] - self._seconds[0]) / later


def _events_of(device: torch.device) -> Callable[[], Any] | None:
    if device.type not in ("cuda", "xpu"):
        return None
    backend: Any = getattr(torch, device.type)

    def mark() -> Any:
        event = backend.Event(enable_timing=True)
        event.record(backend.current_stream(device))
        return event

    return mark
