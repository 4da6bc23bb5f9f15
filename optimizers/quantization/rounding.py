"""Scales and rounding: floating point to int8 with one scale for each row, and back.

Each operation is that of comfy-kitchen's reference (eager) backend, so a saved model gives the same bits in ComfyUI.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ...core.errors import WrongObject

_SMALLEST = 1e-30


@dataclass(frozen=True)
class Int8Weight:
    """A linear layer's weight, about ``values * scale``.

    Attributes:
        values: int8 ``[out, in]``.
        scale: float32 ``[out, 1]``.
        rotation: size of the groups of input channels that are rotated before (a file in ConvRot), or 0.
    """

    values: Tensor
    scale: Tensor
    rotation: int = 0

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scale.nbytes


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


def with_row_scales(weight: Int8Weight, outputs: int, inputs: int) -> Int8Weight:
    """Return a weight from somebody's file with one scale for each row, also where the file has one for all.

    Raises `WrongObject` if it is not of a layer with so many channels, or its numbers are no numbers.
    """
    values, scale, group = weight.values, weight.scale.float(), weight.rotation
    problem = ""
    if tuple(values.shape) != (outputs, inputs) or values.dtype != torch.int8:
        problem = f"its weight is {str(values.dtype).removeprefix('torch.')} {list(values.shape)}"
    elif scale.numel() not in (1, outputs):
        problem = f"it has {scale.numel()} scales instead of 1 or {outputs}"
    elif not bool(torch.isfinite(scale).all()):
        problem = "one of its scales is infinite or no number"
    elif group and (group not in (4**power for power in range(1, 8)) or inputs % group):
        problem = f"its inputs cannot be rotated in groups of {group}"
    if problem:
        raise WrongObject(
            f"An int8 layer of this file, {inputs} -> {outputs} channels, is damaged: {problem}.",
            "Load another file of this model.",
        )
    return Int8Weight(values, scale.reshape(-1, 1).expand(outputs, 1).contiguous(), group)


@lru_cache(maxsize=16)
def _hadamard(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the regular, symmetric Hadamard matrix of ConvRot (arXiv 2512.03673), normalised."""
    base = torch.tensor([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]], device=device, dtype=dtype)
    matrix = base
    while len(matrix) < size:
        matrix = torch.kron(matrix, base)
    return matrix.div(size**0.5)


def rotate(x: Tensor, group: int) -> Tensor:
    """Rotate each group of ``group`` channels of ``[..., channels]``; 0 for none. Twice is the identity."""
    if not group:
        return x
    rotated: Tensor = x.unflatten(-1, (-1, group)) @ _hadamard(group, x.device, x.dtype)
    return rotated.flatten(-2)
