"""Which blocks of a UNet have their tokens reduced."""

from __future__ import annotations

from typing import Any

from ....errors import UnsupportedModel
from ....token_merging import TokenMergingSettings
from ..unet import AttentionBlock, attention_blocks, describe_model


def eligible_blocks(patcher: Any, settings: TokenMergingSettings) -> tuple[AttentionBlock, ...]:
    """Return the blocks of a UNet model whose tokens ``settings`` would reduce.

    Raises:
        UnsupportedModel: if the model has no self-attention, or none at an allowed resolution.
    """
    blocks = [block for block in attention_blocks(patcher) if block.self_attention]
    if not blocks:
        raise UnsupportedModel(
            f"{describe_model(patcher)} has no self-attention blocks, so there are no tokens to merge.",
            "Remove the node for this model.",
        )
    levels = sorted({block.downsample for block in blocks})
    limit = levels[0] if settings.max_downsample == "auto" else int(settings.max_downsample)
    chosen = tuple(block for block in blocks if block.downsample <= limit)
    if not chosen:
        raise UnsupportedModel(
            f"max_downsample is {limit}, but {describe_model(patcher)} has its first self-attention at downsample "
            f"{levels[0]}: no block would be merged.",
            f"Set max_downsample to auto or to one of: {', '.join(map(str, levels))}.",
        )
    return chosen
