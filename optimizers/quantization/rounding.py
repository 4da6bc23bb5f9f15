"""Scales and rounding: floating point to int8 with one scale for each row.

Each operation is that of comfy-kitchen's reference (eager) backend, so a saved model gives the same bits in ComfyUI.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SMALLEST = 1e-30


@dataclass(frozen=True)
class Int8Weight:
    """A linear layer's weight, about ``values * scale``.

    Attributes:
        values: int8 ``[out, in]``.
        scale: float32 ``[out, 1]``.
    """

    values: Tensor
    scale: Tensor

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scale.nbytes

    def to(self, device: torch.device) -> Int8Weight:
        return Int8Weight(self.values.to(device), self.scale.to(device))


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 values ``[..., channels]`` and a float32 scale ``[..., 1]`` for each row: symmetric, to nearest."""
    scale = (x.abs().amax(dim=-1, keepdim=True).float() / 127.0).clamp_(min=_SMALLEST)
    divisor = scale.to(x.dtype)
    if x.dtype == torch.float16:  # the smallest scales are zero there
        divisor = torch.where(divisor == 0, torch.finfo(x.dtype).tiny, divisor)
    # In 16 bits the scale is rounded, and the largest value can come out as 128.
    rounded = (x / divisor).round_()
    return (rounded if x.dtype == torch.float32 else rounded.clamp_(-128.0, 127.0)).to(torch.int8), scale


def quantize_weight(weight: Tensor) -> Int8Weight:
    """Quantise a weight ``[out, in]``. Computes in float32."""
    return Int8Weight(*quantize_rows(weight.float()))
