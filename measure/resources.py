"""What a run took: the most memory on its device, and when its steps ended, without waiting for the device after each.

Waiting would make every step pay for what the processor does while a GPU computes, and hide what techniques save there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..optimizers.core.devices import synchronize


class PeakMemory:
    """Measures a ``with`` block; ``beside`` returns bytes on the device that torch's allocator does not count.

    ``device_bytes``: most memory that torch's allocator had given out on the device, and what is beside it at the end;
    None where the allocator does not count (CPU, MPS).
    """

    def __init__(self, device: torch.device, beside: Callable[[], int] = lambda: 0) -> None:
        self._backend: Any = getattr(torch, device.type, None)
        self._device, self._beside = device, beside
        self.device_bytes: int | None = None

    def __enter__(self) -> PeakMemory:
        if hasattr(self._backend, "reset_peak_memory_stats"):
            self._backend.reset_peak_memory_stats(self._device)
        return self

    def __exit__(self, *error: object) -> None:
        if hasattr(self._backend, "max_memory_allocated"):
            self.device_bytes = int(self._backend.max_memory_allocated(self._device)) + self._beside()


Clock = Callable[[], float]
"""Returns seconds."""


class StepTimes:
    """The ends of the steps of one run; ``clock`` is for devices whose work cannot be marked."""

    def __init__(self, device: torch.device, clock: Clock) -> None:
        self._device, self._clock = device, clock
        self._backend: Any = getattr(torch, device.type) if device.type in ("cuda", "xpu") else None
        self._ends: list[Any] = []

    def step(self) -> None:
        """Note that the work of a step was given to the device; waits for it only where nothing can be marked."""
        if self._backend is not None:
            event = self._backend.Event(enable_timing=True)
            event.record(self._backend.current_stream(self._device))
            self._ends.append(event)
            return
        synchronize(self._device)
        self._ends.append(self._clock())

    def mean(self) -> float | None:
        """Return the mean seconds of all steps but the first; None for one step. The device must have done them."""
        later = len(self._ends) - 1
        if later < 1:
            return None
        first, last = self._ends[0], self._ends[-1]
        seconds = last - first if self._backend is None else first.elapsed_time(last) / 1000
        return float(seconds) / later
