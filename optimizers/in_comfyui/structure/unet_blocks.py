"""Read the structure of a ComfyUI diffusion model: which attention blocks it has, and at what resolution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.nn import Module

from ...models.families import Block, transformer_blocks
from .protocols import ModelPatcher

BlockKey = tuple[str, int, int]
"""ComfyUI's name of a transformer block: part (input, middle, output), block number, index in the block."""


@dataclass(frozen=True)
class AttentionBlock(Block):
    """One transformer block of a UNet; its name is e.g. ``input 4.0``.

    Attributes:
        key: ComfyUI's name of the block, as patches see it.
        self_attention: False where the first attention looks at the text (``disable_self_attn``).
        then_over_time: whether a block over frames follows each run of this one, under the same key (SVD).
    """

    key: BlockKey
    head_dim: int
    self_attention: bool
    then_over_time: bool


def described_blocks(network: Module) -> Iterator[tuple[AttentionBlock, Any]]:
    """Yield every spatial transformer block of a ``UNetModel`` with its description, in the order of execution."""
    seen = 0
    for part, row, number, scale, layer, block in transformer_blocks(network):
        description = AttentionBlock(
            name=f"{part} {row}.{number}",
            number=seen,
            downsample=scale,
            key=(part, row, number),
            head_dim=block.d_head,
            self_attention=not block.disable_self_attn,
            then_over_time=hasattr(layer, "time_stack"),
        )
        seen += description.self_attention
        yield description, block


def attention_blocks(patcher: ModelPatcher) -> tuple[AttentionBlock, ...]:
    """Return the description of every spatial transformer block of a UNet model."""
    return tuple(description for description, _ in described_blocks(patcher.model.diffusion_model))
