"""The most memory that was in use while something ran, on the device and in the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

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
