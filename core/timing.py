"""How long functions take on this machine: measured once, and kept.

Specifications do not tell which kernel is quickest: caches, allocators and fused kernels decide. A few runs do tell.
"""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .devices import is_out_of_memory, processor_facts, synchronize
from .errors import error_line
from .files import write_atomically

_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 50
_SHORTEST, _LONGEST = 0.05, 0.5
"""Seconds for one measurement: the least of many short runs is not that of a busy moment; long ones need no more."""

_CALLS = 8
"""Calls in a row on a GPU, as in a network: what the processor does between two then counts where the GPU waits."""


class KernelFailed(RuntimeError):
    """A kernel cannot compute what it was to be timed with; the text says why."""


def interleaved_seconds(device: torch.device, functions: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the least seconds of one call of each; they take turns, so that a busy moment hits all.

    Waits for the device, so it belongs to the first step with a shape and not to those that follow.
    """
    for function in functions:
        function()
    least = [float("inf")] * len(functions)
    calls = 1 if device.type == "cpu" else _CALLS
    begun = time.perf_counter()
    for rounds in range(_MOST_ROUNDS):
        spent = time.perf_counter() - begun
        if (rounds > 1 and spent > _LONGEST) or (rounds >= _FEWEST_ROUNDS and spent > _SHORTEST):
            break
        for index, function in enumerate(functions):
            synchronize(device)
            start = time.perf_counter()
            for _ in range(calls):
                function()
            synchronize(device)
            least[index] = min(least[index], (time.perf_counter() - start) / calls)
    return least


class KeptTimes:
    """Measured seconds, in memory and in a file, so that the same machine decides the same way at the next start.

    What the file has goes before what was measured now.

    Args:
        file: JSON, ``{section: {key: seconds of each function}}``; None to keep them in this object only.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._known = _read(file)
        self._failed: dict[tuple[str, str], KernelFailed] = {}
        self._changed = False

    def get(self, section: str, key: str, measure: Callable[[], list[float]]) -> list[float]:
        """Return the seconds under ``key``, measured unless they are known.

        Raises:
            KernelFailed: if ``measure`` raises. That is remembered.
            RuntimeError: if memory runs out. That is not: a moment later there can be enough.
        """
        known = self._known.setdefault(section, {})
        if key not in known:
            if (failed := self._failed.get((section, key))) is not None:
                raise failed
            try:
                known[key] = measure()
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                failed = self._failed[section, key] = KernelFailed(f"failed here: {error_line(error)}")
                raise failed from error
            self._changed = True
        return known[key]

    def save(self) -> None:
        """Write what was measured to the file; a folder that cannot be written costs only the memory."""
        if self.file is None or not self._changed:
            return
        content = _read(self.file)
        for section, times in self._known.items():
            content[section] = {**times, **content.get(section, {})}
        try:
            write_atomically(self.file, lambda path: path.write_text(json.dumps(content, indent=1)))
        except OSError as error:
            logging.warning("Paceline: timings of kernels are not kept for the next start: %s", error)
        self._changed = False


def where(device: torch.device, dtype: torch.dtype) -> str:
    """Return what times depend on beside the sizes: the machine, torch and the dtype."""
    return " | ".join((_machine(device), torch.__version__, str(dtype).removeprefix("torch.")))


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} {capability} {_processor()} {torch.get_num_threads()} threads"


def _processor() -> str:
    """Return the processor's family and model where the system tells; its marketing name can be empty."""
    facts = processor_facts()
    names = (facts.get(key, "") for key in ("model name", "cpu family", "model"))
    return " ".join(names).strip() if facts else platform.processor()


def _read(file: Path | None) -> dict[str, dict[str, list[float]]]:
    try:
        content = json.loads(file.read_text()) if file is not None else {}
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
