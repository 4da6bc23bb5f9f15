"""How long a linear layer takes in floating point and in int8, on this machine: measured, and remembered.

Specifications do not tell which layers gain: at 320 channels the passes around the product decide, and they depend on
caches, allocators and fused kernels. A few runs of each distinct shape do tell.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .kernels import Kernel
from .rounding import quantize_weight

MOST_TOKENS = 4096
"""Layers with more tokens are timed with these: time grows in proportion from there on."""

_ROUNDS = 5
_BUDGET = 0.5
"""Seconds for one shape, after which no further round is begun."""


@dataclass(frozen=True)
class Shape:
    """A linear layer's work: ``[tokens, inputs] x [inputs, outputs]``, with ``rotation`` as in ``Int8Weight``."""

    tokens: int
    inputs: int
    outputs: int
    rotation: int = 0

    @property
    def key(self) -> str:
        """Name in the file of timings."""
        return f"{self.tokens}x{self.inputs}x{self.outputs}r{self.rotation}"


@dataclass(frozen=True)
class Timing:
    """Seconds of one layer."""

    floating: float
    int8: float

    @property
    def speedup(self) -> float:
        """Floating point time / int8 time."""
        return self.floating / self.int8


class Timer:
    """Times shapes on one device with one kernel.

    Args:
        kernel: what computes the int8 layers.
        device: where.
        dtype: of the floating point layers and the tokens.
        file: JSON to remember timings in from one start to the next; None to forget them.
    """

    def __init__(self, kernel: Kernel, device: torch.device, dtype: torch.dtype, file: Path | None = None) -> None:
        self.kernel, self.device, self.dtype, self.file = kernel, device, dtype, file
        self._section = " | ".join(
            (_machine(device), torch.__version__, str(dtype).removeprefix("torch."), kernel.name)
        )
        self._known: dict[str, Timing] = {
            key: Timing(*seconds) for key, seconds in _read(file).get(self._section, {}).items()
        }

    def time(self, shape: Shape) -> Timing:
        """Return the timing of ``shape``, measured unless it is known."""
        timed = Shape(min(shape.tokens, MOST_TOKENS), shape.inputs, shape.outputs, shape.rotation)
        if timed.key not in self._known:
            self._known[timed.key] = self._measure(timed)
        known, factor = self._known[timed.key], shape.tokens / timed.tokens
        return Timing(known.floating * factor, known.int8 * factor)

    def remember(self) -> None:
        """Write what was measured to the file; a folder that cannot be written costs only the memory."""
        if self.file is None:
            return
        content = _read(self.file)
        content[self._section] = {key: [value.floating, value.int8] for key, value in self._known.items()}
        temporary = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content, indent=1))
            os.replace(temporary, self.file)
        except OSError as error:
            logging.warning("Paceline: int8 timings are not kept for the next start: %s", error)

    @torch.inference_mode()
    def _measure(self, shape: Shape) -> Timing:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(shape.tokens, shape.inputs, generator=generator).to(self.device, self.dtype)
        weight = (torch.randn(shape.outputs, shape.inputs, generator=generator) / shape.inputs**0.5).to(self.device)
        bias = torch.zeros(shape.outputs, device=self.device, dtype=self.dtype)
        quantized = quantize_weight(weight, shape.rotation)
        plain = weight.to(self.dtype)

        def floating() -> Tensor:
            return torch.nn.functional.linear(x, plain, bias)

        def int8() -> Tensor:
            return self.kernel.linear(x, quantized, bias)

        return Timing(*self._interleaved(floating, int8))

    def _interleaved(self, *functions: Callable[[], Tensor]) -> list[float]:
        """Return the least seconds of each; they take turns, so that a busy moment hits both."""
        for function in functions:
            function()
        least = [float("inf")] * len(functions)
        begun = time.perf_counter()
        for number in range(_ROUNDS):
            if number > 1 and time.perf_counter() - begun > _BUDGET:
                break
            for index, function in enumerate(functions):
                self._synchronize()
                start = time.perf_counter()
                function()
                self._synchronize()
                least[index] = min(least[index], time.perf_counter() - start)
        return least

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} {capability} {_processor()} {torch.get_num_threads()} threads"


def _processor() -> str:
    """Return the processor's family and model where the system tells; its marketing name can be empty."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    found = dict(line.split(":", 1) for line in lines[:30] if ":" in line)
    values = {key.strip(): value.strip() for key, value in found.items()}
    return " ".join(values.get(key, "") for key in ("model name", "cpu family", "model")).strip()


def _read(file: Path | None) -> dict[str, dict[str, list[float]]]:
    if file is None or not file.exists():
        return {}
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


CLEARLY = 1.15
"""How many times quicker a kernel must be to be preferred to an earlier one of the list."""


def fastest(
    kernels: list[Kernel], shape: Shape, device: torch.device, dtype: torch.dtype
) -> tuple[Kernel, dict[str, str]]:
    """Return the kernel to use for work like ``shape``, and for each that failed how.

    Kernels can differ in the last bit, so a choice must not change with the machine's mood: it is made once in a
    process, and a kernel has to be clearly quicker than those before it.
    """
    key = (tuple(kernel.name for kernel in kernels), device, dtype)
    if key not in _chosen:
        _chosen[key] = _fastest(kernels, shape, device, dtype)
    return _chosen[key]


_chosen: dict[tuple[tuple[str, ...], torch.device, torch.dtype], tuple[Kernel, dict[str, str]]] = {}


def _fastest(
    kernels: list[Kernel], shape: Shape, device: torch.device, dtype: torch.dtype
) -> tuple[Kernel, dict[str, str]]:
    failures: dict[str, str] = {}
    best: tuple[float, Kernel] | None = None
    for kernel in (kernel for kernel in kernels if kernel.fast):
        try:
            seconds = Timer(kernel, device, dtype).time(shape).int8
        except (RuntimeError, NotImplementedError, ValueError) as error:
            failures[kernel.name] = f"failed here: {str(error).splitlines()[0][:120]}"
            continue
        if best is None or seconds * CLEARLY < best[0]:
            best = seconds, kernel
    if best is None:
        return next(kernel for kernel in kernels if not kernel.fast), failures
    return best[1], failures
