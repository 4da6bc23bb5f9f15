"""How long a linear layer takes in floating point and in int8, on this machine: measured, and kept.

Specifications do not tell which layers gain: at 320 channels the passes around the product decide, and they depend on
caches, allocators and fused kernels. A few runs of each distinct shape do tell.
"""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ...core.devices import is_out_of_memory, processor_facts, synchronize
from ...core.files import write_atomically
from .kernels import Kernel, error_line
from .rounding import Int8Weight, quantize_weight

MOST_TOKENS = 4096
"""Layers with more tokens are timed with these: time grows in proportion from there on."""

CLEARLY = 1.15
"""How many times quicker a kernel must be to be preferred to an earlier one of the list."""

_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 50
_SHORTEST, _LONGEST = 0.05, 0.5
"""Seconds for one shape: the least of many short runs is not that of a busy moment, and long ones need no more runs."""


_CALLS = 8
"""Calls in a row on a GPU, as in a network: what the processor does between two then counts where the GPU waits."""

Layers = Callable[[Kernel, Int8Weight, Tensor, Tensor], tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]
"""Makes the two layers that a host would run, of (kernel, int8 weight, weight, bias): in floating point, in int8."""


class KernelFailed(RuntimeError):
    """A kernel cannot compute a shape; the text says why."""


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


class Timings:
    """The times of layers on one device, each measured once.

    With a file they are kept from one start to the next, so the same model on the same machine is decided the same way
    again, however busy the machine is then. What the file has goes before what was measured now.

    Args:
        device: where.
        dtype: of the floating point layers and the tokens.
        file: JSON, ``{machine and kernel: {shape: [seconds in floating point, seconds in int8]}}``; None to keep them
            in this object only.
        layers: the host's own, with all that they do around the product; None to time the products.
    """

    def __init__(
        self, device: torch.device, dtype: torch.dtype, file: Path | None = None, layers: Layers | None = None
    ) -> None:
        self.device, self.dtype, self.file, self.layers = device, dtype, file, layers
        parts = (_machine(device), torch.__version__, str(dtype).removeprefix("torch."))
        self._machine = " | ".join((*parts, "whole layers") if layers is not None else parts)
        self._known = _read(file)
        self._failed: dict[tuple[str, str], KernelFailed] = {}
        self._changed = False

    def time(self, kernel: Kernel, shape: Shape) -> Timing:
        """Return the timing of ``shape`` with ``kernel``, measured unless it is known.

        Raises:
            KernelFailed: if the kernel cannot compute it. That is remembered, for this shape.
            RuntimeError: if memory runs out. That is not: a moment later there can be enough.
        """
        timed = replace(shape, tokens=min(shape.tokens, MOST_TOKENS))
        known = self._known.setdefault(f"{self._machine} | {kernel.name}", {})
        if timed.key not in known:
            if (failed := self._failed.get((kernel.name, timed.key))) is not None:
                raise failed
            try:
                known[timed.key] = self._measure(kernel, timed)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                failed = self._failed[kernel.name, timed.key] = KernelFailed(f"failed here: {error_line(error)}")
                raise failed from error
            self._changed = True
        (floating, int8), factor = known[timed.key], shape.tokens / timed.tokens
        return Timing(floating * factor, int8 * factor)

    def fastest(self, kernels: Sequence[Kernel], shape: Shape) -> tuple[Kernel, dict[str, str]]:
        """Return the kernel to use for ``shape``, and for each that failed how.

        Kernels can differ in the last bit, so a choice must not change from one time to the next: it follows from
        the timings that are kept, and a kernel has to be clearly quicker than those before it.

        Raises:
            RuntimeError: if memory ran out and nothing else is as fast as floating point.
        """
        failures: dict[str, str] = {}
        best: tuple[float, Kernel] | None = None
        memory: Exception | None = None
        for kernel in (kernel for kernel in kernels if kernel.fast):
            try:
                seconds = self.time(kernel, shape).int8
            except KernelFailed as error:
                failures[kernel.name] = str(error)
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

    def save(self) -> None:
        """Write what was measured to the file; a folder that cannot be written costs only the memory."""
        if self.file is None or not self._changed:
            return
        content = _read(self.file)
        for section, timings in self._known.items():
            content[section] = {**timings, **content.get(section, {})}
        try:
            write_atomically(self.file, lambda path: path.write_text(json.dumps(content, indent=1)))
        except OSError as error:
            logging.warning("Paceline: int8 timings are not kept for the next start: %s", error)
        self._changed = False

    @torch.inference_mode()
    def _measure(self, kernel: Kernel, shape: Shape) -> list[float]:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(shape.tokens, shape.inputs, generator=generator).to(self.device, self.dtype)
        weight = (torch.randn(shape.outputs, shape.inputs, generator=generator) / shape.inputs**0.5).to(self.device)
        bias = torch.zeros(shape.outputs, device=self.device, dtype=self.dtype)
        quantized = quantize_weight(weight, shape.rotation)
        plain = weight.to(self.dtype)
        kernel.linear(x, quantized, bias)  # raises, where a layer would go on in floating point
        if self.layers is not None:
            floating, int8 = self.layers(kernel, quantized, plain, bias)
            return self._interleaved(lambda: floating(x), lambda: int8(x))
        return self._interleaved(
            lambda: torch.nn.functional.linear(x, plain, bias), lambda: kernel.linear(x, quantized, bias)
        )

    def _interleaved(self, *functions: Callable[[], Tensor]) -> list[float]:
        """Return the least seconds of each; they take turns, so that a busy moment hits both."""
        for function in functions:
            function()
        least = [float("inf")] * len(functions)
        calls = 1 if self.device.type == "cpu" else _CALLS
        begun = time.perf_counter()
        for rounds in range(_MOST_ROUNDS):
            spent = time.perf_counter() - begun
            if (rounds > 1 and spent > _LONGEST) or (rounds >= _FEWEST_ROUNDS and spent > _SHORTEST):
                break
            for index, function in enumerate(functions):
                synchronize(self.device)
                start = time.perf_counter()
                for _ in range(calls):
                    function()
                synchronize(self.device)
                least[index] = min(least[index], (time.perf_counter() - start) / calls)
        return least


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
