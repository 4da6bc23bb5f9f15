"""How long a linear layer takes in floating point and in int8, on this machine: measured, and kept.

Specifications do not tell: at 320 channels the passes around the product decide, which depend on caches, allocators and
fused kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ...core.devices import is_out_of_memory
from .kernel_times import KeptTimes, KernelFailed, interleaved_seconds, where
from .kernels import Kernel
from .rounding import Int8Weight, quantize_weight

MOST_TOKENS = {"cpu": 256}
OTHERWISE_MOST_TOKENS = 4096
"""Layers with more tokens are timed with these, by device: time grows in proportion from there on."""

_LAYERS = 2
"""Two layers are timed: in floating point and in int8."""

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
    """The times of layers on one device, each measured once, and kept from one start to the next if there is a file.

    Args:
        dtype: of the floating point layers and the tokens.
        file: see ``KeptTimes``: sections are machine and kernel, each time is [in floating point, in int8].
        layers: the host's own, with all that they do around the product; None to time the products.
    """

    def __init__(
        self, device: torch.device, dtype: torch.dtype, file: Path | None = None, layers: MakeLayers | None = None
    ) -> None:
        self.device, self.dtype, self.layers = device, dtype, layers
        self._machine = where(device, dtype) + (" | whole layers" if layers is not None else "")
        self._kept = KeptTimes(file)
        self.save = self._kept.save

    def time(self, kernel: Kernel, shape: Shape) -> Timing:
        """Return the timing of ``shape`` with ``kernel``, measured unless it is known.

        Raises `KernelFailed` if the kernel cannot compute it, which is remembered for this shape, and RuntimeError if
        memory runs out, which is not: a moment later there can be enough.
        """
        timed = self._timed(shape)
        floating, int8 = self._kept.get(self._section(kernel), timed.key, lambda: self._measure(kernel, timed), _LAYERS)
        return Timing(floating, int8).times(shape.tokens / timed.tokens)

    def known(self, kernel: Kernel, shape: Shape) -> Timing | None:
        """Return the timing of ``shape`` with ``kernel`` if it was measured before; measures nothing."""
        timed = self._timed(shape)
        seconds = self._kept.known(self._section(kernel), timed.key, _LAYERS)
        return None if seconds is None else Timing(*seconds).times(shape.tokens / timed.tokens)

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
