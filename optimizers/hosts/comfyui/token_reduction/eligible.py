"""Which blocks of a UNet have their tokens reduced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....core.errors import UnsupportedModel
from ....token_merging import TokenMergingSettings
from ..model import describe_model
from ..unet import AttentionBlock


def eligible_blocks(
    patcher: Any, blocks: Sequence[AttentionBlock], settings: TokenMergingSettings
) -> tuple[AttentionBlock, ...]:
    """Return those of a UNet model's self-attention blocks whose tokens ``settings`` would reduce.

    Raises:
        UnsupportedModel: if the model has no self-attention, or none at an allowed resolution.
    """
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
