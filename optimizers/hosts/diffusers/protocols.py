"""What this package uses of diffusers' objects, as types: their classes are found by what they have, not by their name.

Models are plain ``torch.nn.Module``. ``Any`` stands where diffusers hands out values of every kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module, ModuleList


class Scheduler(Protocol):
    """Makes the timesteps of a run; ``step_index`` and ``begin_index`` only on schedulers that count their steps."""

    timesteps: Tensor
    config: Mapping[str, Any]

    def set_timesteps(self, *args: object, **kwargs: object) -> None: ...


class Pipeline(Protocol):
    """A diffusers pipeline: its parts by name. ``scheduler`` is one of them in every pipeline."""

    scheduler: Scheduler

    @property
    def components(self) -> Mapping[str, Any]: ...

    def __call__(self, *args: object, **kwargs: object) -> Any: ...


class UNet(Protocol):
    """A ``UNet2DConditionModel``."""

    down_blocks: ModuleList
    mid_block: Module | None
    up_blocks: ModuleList


class AttentionLayer(Protocol):
    """An attention layer of any of diffusers' models."""

    heads: int
    inner_dim: int
    to_q: Module
    to_k: Module
    to_v: Module

    def get_processor(self) -> Any: ...

    def set_processor(self, processor: object) -> None: ...
