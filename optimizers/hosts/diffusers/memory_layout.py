"""Lay out a network's convolutions with their channels last, and back."""

from __future__ import annotations

from functools import partial

import torch

from ....core.memory_format import channels_last
from .patches import Patches


def to_channels_last(part: torch.nn.Module, patches: Patches) -> None:
    """Lay out the weights of convolutions with their channels last; images follow the weights."""
    for parameter in part.parameters():
        laid_out = channels_last(parameter.data)
        if laid_out is not parameter.data and laid_out.stride() != parameter.data.stride():
            patches.on_undo(partial(_restride, parameter, parameter.data.stride()))
            parameter.data = laid_out


def _restride(parameter: torch.Tensor, strides: tuple[int, ...]) -> None:
    data = torch.empty_strided(parameter.shape, strides, dtype=parameter.dtype, device=parameter.device)
    parameter.data = data.copy_(parameter.data)
