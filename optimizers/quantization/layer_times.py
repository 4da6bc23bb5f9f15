"""How long a linear layer takes in floating point and in int8, on this machine: measured, and kept.

Specifications do not tell: at 320 channels the passes around the product decide, which depend on caches, allocators and
fused kernels.
"""

from __future__ import annotations

import json
import logging
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.devices import is_out_of_memory, processor_facts, synchronize
from ...core.errors import error_line
from ...core.files import read_json, write_atomically
from .kernels import Kernel
from .rounding import Int8Weight, quantize_weight

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


def interleaved_seconds(device: torch.device, functions: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the least seconds of one call of each; they take turns, until the shortest times of each agree.

    On a processor these are seconds of one core in which it worked for us: load from other programs then hardly counts,
    while on all cores it would slow down one function more than another. On other devices it waits for the device, so
    it belongs to the first step with a shape.
    """
    on_processor = device.type == "cpu"
    is_fine = time.get_clock_info("thread_time").resolution <= 1e-6  # on Windows it is not
    clock = time.thread_time if on_processor and is_fine else time.perf_counter
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


@contextmanager
def _one_core() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
    except (ValueError, TypeError, AttributeError, OverflowError):
        return {}
    seconds = [each for times in known.values() for each in times.values()]
    return known if all(len(each) == 2 and all(0 < one < math.inf for one in each) for each in seconds) else {}


MOST_TOKENS = {"cpu": 256}
OTHERWISE_MOST_TOKENS = 4096
"""Layers with more tokens are timed with these, by device: time grows in proportion from there on."""

CLEARLY = 1.15
"""How many times quicker a kernel must be to be preferred to an earlier one of the list."""

MakeLayers = Callable[
    [Kernel, Int8Weight, Tensor, Tensor], tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
]
"""Makes the two layers that a host would run, of (kernel, int8 weight, weight, bias): in floating point, in int8."""


@dataclass(frozen=True)
class Shape:
    """A linear layer's work: ``[tokens, inputs] x [inputs, outputs]``."""

    tokens: int
    inputs: int
    outputs: int

    @property
    def key(self) -> str:
        return f"{self.tokens}x{self.inputs}x{self.outputs}"


@dataclass(frozen=True)
class Timing:
    """Seconds of one layer."""

    floating: float
    int8: float

    @property
    def speedup(self) -> float:
        """Floating point time / int8 time."""
        return self.floating / self.int8

    def times(self, factor: float) -> Timing:
        return Timing(self.floating * factor, self.int8 * factor)


class Timings:
    """The times of layers on one device, each measured once, so that the same machine decides the same way each time.

    Args:
        dtype: of the floating point layers and the tokens.
        file: keeps them for the next start, ``{machine and kernel: {shape: [in floating point, in int8]}}``, and wins
            over what was measured now; None for no file.
        layers: the host's own, with all that they do around the product; None to time the products.
    """

    def __init__(
        self, device: torch.device, dtype: torch.dtype, file: Path | None = None, layers: MakeLayers | None = None
    ) -> None:
        self.device, self.dtype, self.file, self.layers = device, dtype, file, layers
        self._machine = where(device, dtype) + (" | whole layers" if layers is not None else "")
        self._known = _read(file)
        self._failed: dict[tuple[str, str], str] = {}  # no errors: their frames would keep tensors in memory
        self._changed = False

    def time(self, kernel: Kernel, shape: Shape) -> Timing:
        """Return the timing of ``shape`` with ``kernel``, measured unless it is known.

        Raises `KernelFailed` if the kernel cannot compute it, which is remembered for this shape, and RuntimeError if
        memory runs out, which is not: a moment later there can be enough.
        """
        known = self.known(kernel, shape)
        if known is not None:
            return known
        timed = self._timed(shape)
        section, key = place = self._section(kernel), timed.key
        if place in self._failed:
            raise KernelFailed(self._failed[place])
        try:
            seconds = self._measure(kernel, timed)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            self._failed[place] = f"failed here: {error_line(error)}"
            raise KernelFailed(self._failed[place]) from error
        self._known.setdefault(section, {})[key] = seconds
        self._changed = True
        return Timing(*seconds).times(shape.tokens / timed.tokens)

    def known(self, kernel: Kernel, shape: Shape) -> Timing | None:
        """Return the timing of ``shape`` with ``kernel`` if it was measured before; measures nothing."""
        timed = self._timed(shape)
        seconds = self._known.get(self._section(kernel), {}).get(timed.key)
        return None if seconds is None else Timing(*seconds).times(shape.tokens / timed.tokens)

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

    def _timed(self, shape: Shape) -> Shape:
        most = MOST_TOKENS.get(self.device.type, OTHERWISE_MOST_TOKENS)
        return replace(shape, tokens=min(shape.tokens, most))

    def _section(self, kernel: Kernel) -> str:
        return f"{self._machine} | {kernel.name}"

    def fastest(self, kernels: Sequence[Kernel], shape: Shape) -> tuple[Kernel, dict[str, str]]:
        """Return the kernel to use for ``shape``, and for each that failed how.

        Kernels can differ in the last bit, so a choice must not change: it follows from the timings that are kept, and
        a kernel has to be clearly quicker than those before it. Raises RuntimeError if memory ran out and nothing else
        is as fast as floating point.
        """
        failures: dict[str, str] = {}
        best: tuple[float, Kernel] | None = None
        memory: Exception | None = None
        for kernel in (kernel for kernel in kernels if kernel.fast):
            try:
                seconds = self.time(kernel, shape).int8
            except KernelFailed as error:
                failures[kernel.name] = error.args[0]
                continue
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                failures[kernel.name], memory = "memory ran out while it was timed", error
                continue
            if best is None or seconds * CLEARLY < best[0]:
                best = seconds, kernel
        if best is not None:
            return best[1], failures
        if memory is not None:
            raise memory
        return next(kernel for kernel in kernels if not kernel.fast), failures

    @torch.inference_mode()
    def _measure(self, kernel: Kernel, shape: Shape) -> list[float]:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(shape.tokens, shape.inputs, generator=generator).to(self.device, self.dtype)
        weight = (torch.randn(shape.outputs, shape.inputs, generator=generator) / shape.inputs**0.5).to(self.device)
        bias = torch.zeros(shape.outputs, device=self.device, dtype=self.dtype)
        quantized = quantize_weight(weight)
        plain = weight.to(self.dtype)
        kernel.linear(x, quantized, bias)  # raises, where a layer would go on in floating point
        if self.layers is not None:
            floating, int8 = self.layers(kernel, quantized, plain, bias)
            return interleaved_seconds(self.device, [lambda: floating(x), lambda: int8(x)])
        return interleaved_seconds(
            self.device, [lambda: torch.nn.functional.linear(x, plain, bias), lambda: kernel.linear(x, quantized, bias)]
        )
