"""How long functions take on this machine: measured once, and kept.

Specifications do not tell which kernel is quickest: caches, allocators and fused kernels decide.
"""

from __future__ import annotations

import json
import logging
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from ...core.devices import is_out_of_memory, processor_facts, synchronize
from ...core.errors import error_line
from ...core.files import read_json, write_atomically

_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 200
_SHORTEST, _LONGEST = 0.05, 4.0
"""Seconds for one measurement, at least and at most; how long it takes depends on how much the times differ."""

_AGREE = 3
_NARROW = 1.05
"""Times have settled when so many of the shortest lie within this factor of the least."""

_CALLS = 8
"""Calls in a row on a GPU, as in a network: what the processor does between two then counts where the GPU waits."""


class KernelFailed(RuntimeError):
    """A kernel cannot compute what it was to be timed with; the text says why."""


def interleaved_seconds(
    device: torch.device, functions: Sequence[Callable[[], Any]], clock: Callable[[], float] | None = None
) -> list[float]:
    """Return the least seconds of one call of each; they take turns, until the shortest times of each agree.

    On a processor these are seconds of one core in which it worked for us: load from other programs then hardly counts,
    while on all cores it would slow down one function more than another. On other devices it waits for the device, so
    it belongs to the first step with a shape. ``clock`` replaces the one that fits the device.
    """
    on_processor = device.type == "cpu"
    clock = clock or (_core_clock() if on_processor else time.perf_counter)
    with _one_core() if on_processor else nullcontext():
        for function in functions:
            function()
        taken: list[list[float]] = [[] for _ in functions]
        calls = 1 if on_processor else _CALLS
        begun = clock()
        for rounds in range(_MOST_ROUNDS):
            spent = clock() - begun
            if rounds > 2 and spent > _LONGEST:
                break
            if rounds >= _FEWEST_ROUNDS and spent > _SHORTEST and all(map(_have_settled, taken)):
                break
            for function, seconds in zip(functions, taken, strict=True):
                synchronize(device)
                start = clock()
                for _ in range(calls):
                    function()
                synchronize(device)
                seconds.append((clock() - start) / calls)
    return [min(seconds) for seconds in taken]


def _have_settled(seconds: list[float]) -> bool:
    shortest = sorted(seconds)[:_AGREE]
    return shortest[-1] <= shortest[0] * _NARROW


def _core_clock() -> Callable[[], float]:
    """Return the clock of the work of this thread, or of the wall where that is too coarse (Windows)."""
    return time.thread_time if time.get_clock_info("thread_time").resolution <= 1e-6 else time.perf_counter


@contextmanager
def _one_core() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class KeptTimes:
    """Measured seconds, in memory and in a JSON file, so that the same machine decides the same way at the next start.

    The file holds ``{section: {key: seconds of each function}}`` and wins over what was measured now; None for no file.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._known = _read(file)
        self._failed: dict[tuple[str, str], str] = {}  # no errors: their frames would keep tensors in memory
        self._changed = False

    def known(self, section: str, key: str, count: int = 0) -> list[float] | None:
        """Return the seconds of ``count`` functions under ``key`` if they were measured; 0 takes any number."""
        seconds = self._known.get(section, {}).get(key)
        return None if seconds is None or (count and len(seconds) != count) else seconds

    def get(self, section: str, key: str, measure: Callable[[], list[float]], count: int = 0) -> list[float]:
        """Return the seconds of ``count`` functions under ``key``, by ``measure`` unless they are known.

        ``count`` guards against a file changed by hand; 0 takes any number.

        Raises:
            KernelFailed: if ``measure`` raises. That is remembered.
            RuntimeError: if memory runs out. That is not: a moment later there can be enough.
        """
        seconds = self.known(section, key, count)
        if seconds is None:
            if (failed := self._failed.get((section, key))) is not None:
                raise KernelFailed(failed)
            try:
                seconds = measure()
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                failed = f"failed here: {error_line(error)}"
                self._failed[section, key] = failed
                raise KernelFailed(failed) from error
            self._known.setdefault(section, {})[key] = seconds
            self._changed = True
        return seconds

    def save(self) -> None:
        """Write what was measured to the file, if the folder can be written."""
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
    if device.type == "cuda":
        machine = torch.cuda.get_device_name(device)
    else:
        facts = processor_facts()  # its marketing name can be empty
        names = (facts.get(key, "") for key in ("model name", "cpu family", "model"))
        name = " ".join(names).strip() if facts else platform.processor()
        machine = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {name} one core"
    return " | ".join((machine, torch.__version__, str(dtype).removeprefix("torch.")))


def _read(file: Path | None) -> dict[str, dict[str, list[float]]]:
    """Return what a file has; a damaged one has nothing, and is measured again."""
    try:
        content = read_json(file) if file is not None else {}
        known = {
            name: {key: [float(one) for one in each] for key, each in times.items()} for name, times in content.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
    seconds = [each for times in known.values() for each in times.values()]
    return known if all(each and all(0 < one < math.inf for one in each) for each in seconds) else {}
