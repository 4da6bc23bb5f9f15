"""How many operations fewer tokens save: an estimate from the sizes of the layers, not a measurement of time.

Counted are multiplications and additions of matrix products and convolutions, as torch's flop counter does. How much
time an operation takes differs between layers and kernels, so the share of time that is saved is another number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .....core.phrases import phrase, translatable
from ..unet import AttentionBlock, layers

TEXT_TOKENS = 77
"""Of one prompt. More of them hardly change a step's operations."""


@dataclass(frozen=True)
class StepWork:
    """The operations of one pass through a ``UNetModel``, for one element of a batch: a polynomial of its size.

    Attributes:
        constant: whatever the size.
        linear: for each position of the latent.
        quadratic: for each pair of them; self-attention.
    """

    constant: float
    linear: float
    quadratic: float

    @classmethod
    def of(cls, network: Any) -> StepWork:
        """Read the sizes of a network's layers."""
        from comfy.ldm.modules.attention import SpatialTransformer

        constant, linear, quadratic = 0.0, float(_size(network.out[-1])), 0.0
        for _, _, layer, scale in layers(network):
            share = 1 / scale**2  # of the latent's positions
            for name, module in layer.named_modules():
                size = _size(module)
                if "emb_layers" in name:
                    constant += size
                elif name.endswith(("attn2.to_k", "attn2.to_v")):
                    constant += size * TEXT_TOKENS
                else:
                    linear += size * share
            for block in layer.transformer_blocks if isinstance(layer, SpatialTransformer) else ():
                channels = block.n_heads * block.d_head
                linear += 4 * share * TEXT_TOKENS * channels
                quadratic += 0.0 if block.disable_self_attn else 4 * share**2 * channels
        return cls(constant, linear, quadratic)

    def operations(self, positions: float) -> float:
        """Return the operations for a latent of this many positions (height times width)."""
        return self.constant + self.linear * positions + self.quadratic * positions**2


def self_attention_operations(queries: int, keys: int, channels: int) -> int:
    """Return the operations of one self-attention with its four projections."""
    return 4 * queries * keys * channels + 4 * (queries + keys) * channels**2


def saved_lines(
    step: StepWork, blocks: Iterable[AttentionBlock], tokens: Mapping[str, tuple[int, int]], shrinks_queries: bool
) -> tuple[str, ...]:
    """Return one line for each level of a UNet with what was saved there, and one for the whole step.

    ``tokens``: how many before and after, by the blocks' names. ``shrinks_queries``: whether queries are fewer too.
    """
    levels: dict[int, list[tuple[int, int, int, int]]] = {}  # tokens before, after, operations before, after
    for block in blocks:
        before, after = tokens.get(block.name, (0, 0))
        if before:
            whole = self_attention_operations(before, before, block.channels)
            less = self_attention_operations(after if shrinks_queries else before, after, block.channels)
            levels.setdefault(block.downsample, []).append((before, after, whole, less))
    lines: list[str] = []
    whole_size = translatable("the latent's size")
    for level, found in sorted(levels.items()):
        where = whole_size if level == 1 else phrase("1/{level} of the latent's size", level=level)
        sizes = ", ".join(f"{before} -> {after}" for before, after in sorted({entry[:2] for entry in found}))
        share = 1 - sum(entry[3] for entry in found) / sum(entry[2] for entry in found)
        lines.append(
            phrase(
                "at {where}: {sizes} in {count} {count|block|blocks}, {share:.0%} less work in self-attention",
                where=where,
                sizes=sizes,
                count=len(found),
                share=share,
            )
        )
    if not levels:
        return ()
    positions = max(found[0][0] * level**2 for level, found in levels.items())
    saved = sum(whole - less for found in levels.values() for _, _, whole, less in found)
    share = saved / step.operations(positions)
    about = phrase(
        "about {share:.0%} less work in such a step (estimated from the layers' sizes, not timed)", share=share
    )
    return (*lines, about)


def _size(module: Any) -> int:
    """Return the operations of a linear layer or convolution for each of its positions; 0 for everything else."""
    if hasattr(module, "in_features") and hasattr(module, "out_features"):
        return 2 * int(module.in_features) * int(module.out_features)
    if hasattr(module, "kernel_size") and hasattr(module, "in_channels"):
        kernel = int(math.prod(module.kernel_size))
        return 2 * kernel * int(module.in_channels) * int(module.out_channels) // int(module.groups)
    return 0
