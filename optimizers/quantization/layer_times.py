"""How long a linear layer takes in floating point and in int8, on this machine: measured, and kept.

Specifications do not tell: at 320 channels the passes around the product decide, which depend on caches, allocators and
fused kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.devices import is_out_of_memory, synchronize
from ..core.errors import error_line
from ..core.seconds import KeptSeconds, where

_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 200
_SHORTEST, _LONGEST = 0.05, 4.0
"""Seconds for one measurement, at least and at most; how long it takes depends on how much the times differ."""

_AGREE = 3
_NARROW = 1.05
"""Times have settled when so many of the shortest lie within this factor of the least."""

_CALLS = 8
"""Calls in a row on a GPU, as in a network: what the processor does between two then counts where the GPU waits."""


class KernelFailed(RuntimeError):
    """A layer of this size cannot be computed in int8; the text says why."""


def interleaved_seconds(device: torch.device, functions: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the least seconds of one call of each; they take turns, until the shortest times of each agree.

    It waits for the device, so it belongs to the first step with a shape.
    """
    for function in functions:
        function()
    taken: list[list[float]] = [[] for _ in functions]
    calls = 1 if device.type == "cpu" else _CALLS
    begun = time.perf_counter()
    for rounds in range(_MOST_ROUNDS):
        spent = time.perf_counter() - begun
        if rounds > 2 and spent > _LONGEST:
            break
        if rounds >= _FEWEST_ROUNDS and spent > _SHORTEST and all(map(_have_settled, taken)):
            break
        for function, seconds in zip(functions, taken, strict=True):
            synchronize(device)
            start = time.perf_counter()
            for _ in range(calls):
                function()
            synchronize(device)
            seconds.append((time.perf_counter() - start) / calls)
    return [min(seconds) for seconds in taken]


def _have_settled(seconds: list[float]) -> bool:
    shortest = sorted(seconds)[:_AGREE]
    return shortest[-1] <= shortest[0] * _NARROW


TIMED_TOKENS = {"cpu": 256}
OTHERWISE_TIMED_TOKENS = 4096
"""Tokens that each size of layer is timed with, by device: on a GPU those of an image of 1024 x 1024."""

MakeLayers = Callable[[Tensor, Tensor], tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]
"""Makes the two layers that a host would run, of a float32 weight and a bias: in the dtype of the bias, in int8."""


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
    """The times of a host's layers on one device: one for each size, so that a machine decides the same way each time.

    Args:
        dtype: of the floating point layers and the tokens.
        kernel: what computes the int8 product, for reports and the file.
        layers: the host's own, with all that they do around the product.
        file: keeps them for the next start, ``{machine and kernel: {size: [in floating point, in int8]}}``, and wins
            over what was measured now; None for no file.
    """

    def __init__(
        self, device: torch.device, dtype: torch.dtype, kernel: str, layers: MakeLayers, file: Path | None = None
    ) -> None:
        self.device, self.dtype, self.kernel, self.layers = device, dtype, kernel, layers
        self._tokens = TIMED_TOKENS.get(device.type, OTHERWISE_TIMED_TOKENS)
        self._kept = KeptSeconds(file, f"{where(device, dtype)} | whole layers | {kernel}")
        self._failed: dict[str, str] = {}  # no errors: their frames would keep tensors in memory

    def time(self, inputs: int, outputs: int) -> Timing:
        """Return the timing of a layer with so many channels, measured unless it is known.

        Raises `KernelFailed` if it cannot be computed, which is remembered for this size, and RuntimeError if memory
        runs out, which is not: a moment later there can be enough.
        """
        key = f"{self._tokens}x{inputs}x{outputs}"
        if key in self._failed:
            raise KernelFailed(self._failed[key])
        if key not in self._kept.known:
            try:
                self._kept.keep(key, self._measure(inputs, outputs))
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                self._failed[key] = f"failed here: {error_line(error)}"
                raise KernelFailed(self._failed[key]) from error
        return Timing(*self._kept.known[key])

    @torch.inference_mode()
    def _measure(self, inputs: int, outputs: int) -> list[float]:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self._tokens, inputs, generator=generator).to(self.device, self.dtype)
        weight = (torch.randn(outputs, inputs, generator=generator) / inputs**0.5).to(self.device)
        bias = torch.zeros(outputs, device=self.device, dtype=self.dtype)
        floating, int8 = self.layers(weight, bias)
        return interleaved_seconds(self.device, [lambda: floating(x), lambda: int8(x)])
