"""Read the structure of a ComfyUI diffusion model: which attention blocks it has, and at what resolution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from torch.nn import Module

from ....families import Block
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


def layers(network: Module) -> Iterator[tuple[str, int, Module, int]]:
    """Yield part, block number and downsample of every layer of a ``UNetModel``, in the order of execution."""
    from comfy.ldm.modules.diffusionmodules.openaimodel import Downsample, ResBlock, Upsample

    scale, unet = 1, cast(Any, network)
    middle = [] if unet.middle_block is None else [unet.middle_block]  # KOALA-700M has none
    parts = (("input", unet.input_blocks), ("middle", middle), ("output", unet.output_blocks))
    for part, sequences in parts:
        for number, sequence in enumerate(sequences):
            for layer in sequence:
                # resblock_updown: the change of resolution sits inside of the residual block
                resampler = layer.h_upd if isinstance(layer, ResBlock) and layer.updown else layer
                if isinstance(resampler, Downsample):
                    scale *= 2
                elif isinstance(resampler, Upsample):
                    scale //= 2
                yield part, number, layer, scale


def transformer_blocks(network: Module) -> Iterator[tuple[AttentionBlock, Any]]:
    """Yield every spatial transformer block of a ``UNetModel``, in the order of execution.

    Not the temporal ones of video UNets (``time_stack``): their tokens are frames.
    """
    from comfy.ldm.modules.attention import SpatialTransformer

    seen = 0
    for part, number, layer, scale in layers(network):
        if not isinstance(layer, SpatialTransformer):
            continue
        for index, block in enumerate(layer.transformer_blocks):
            description = AttentionBlock(
                name=f"{part} {number}.{index}",
                number=seen,
                downsample=scale,
                key=(part, number, index),
                head_dim=block.d_head,
                self_attention=not block.disable_self_attn,
                then_over_time=hasattr(layer, "time_stack"),
            )
            seen += description.self_attention
            yield description, block


def attention_blocks(patcher: ModelPatcher) -> tuple[AttentionBlock, ...]:
    """Return the description of every spatial transformer block of a UNet model."""
    return tuple(description for description, _ in transformer_blocks(patcher.model.diffusion_model))
