"""What this package uses of diffusers' objects, as types: their classes are found by what they have.

Models are plain ``torch.nn.Module``. ``Any`` stands where diffusers hands out values of every kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Module, ModuleList
from torch.utils.hooks import RemovableHandle

from ....core.calls import Function


class DiffusersScheduler(Protocol):
    """Makes the timesteps of a run; ``step_index`` and ``begin_index`` only on schedulers that count their steps."""

    timesteps: Tensor
    config: Mapping[str, Any]


class Model(Protocol):
    """A model with its configuration; every one is also a ``torch.nn.Module``."""

    config: Any
    device: torch.device
    dtype: torch.dtype

    def register_forward_pre_hook(self, hook: Function) -> RemovableHandle: ...


class DiffusersUNet(Protocol):
    """A ``UNet2DConditionModel``."""

    down_blocks: ModuleList
    mid_block: Module | None
    up_blocks: ModuleList


class AttentionModule(Protocol):
    """An attention layer of any of diffusers' models."""

    heads: int
    inner_dim: int

    def get_processor(self) -> Any: ...
