"""What a run took: the most memory in use, and when its steps ended, without waiting for the device after each.

Waiting would make every step pay for what the processor does while a GPU computes, and hide what techniques save there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from ...core.devices import synchronize

_INTERVAL = 0.02
"""Seconds between two looks at the process's memory."""


class PeakMemory:
    """Measures a ``with`` block; ``beside`` returns bytes on the device that torch's allocator does not count.

    Attributes:
        device_bytes: most memory that torch's allocator had given out on the device, and most that there was beside it,
            looked up every 20 ms; None where the allocator does not count (CPU, MPS). Where the one grew while the
            other shrank the sum is an upper bound.
        process_bytes: most resident memory of the whole process, looked up every 20 ms; None without psutil. What an
            allocator keeps for later counts too, so it says little about a small model.
    """

    def __init__(self, device: torch.device, beside: Callable[[], int] = lambda: 0) -> None:
        backend: Any = getattr(torch, device.type, None)
        self._counts = hasattr(backend, "max_memory_allocated") and hasattr(backend, "reset_peak_memory_stats")
        self._backend, self._device = backend, device
        self._beside, self._most_beside = beside, 0
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self.device_bytes: int | None = None
        self.process_bytes: int | None = None

    def __enter__(self) -> PeakMemory:
        if self._counts:
            self._backend.reset_peak_memory_stats(self._device)
        try:
            import psutil

            process = psutil.Process()
        except ImportError:
            process = None
        self._watcher = threading.Thread(target=self._watch, args=(process,), daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join()
        if self._counts:
            self.device_bytes = int(self._backend.max_memory_allocated(self._device)) + self._most_beside

    def _watch(self, process: Any) -> None:
        while True:
            if process is not None:
                self.process_bytes = max(self.process_bytes or 0, int(process.memory_info().rss))
            if self._counts:
                self._most_beside = max(self._most_beside, self._beside())
            if self._stop.wait(_INTERVAL):
                return


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
