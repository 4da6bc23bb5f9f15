"""Read the structure of a diffusers UNet: which attention it has, and at what resolution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.nn import Module

from ....families.block import Block


@dataclass(frozen=True)
class ModuleBlock(Block):
    """One place with self-attention over the image; its name is a path, e.g. ``down_blocks.1.attentions.0``.

    ``module``: a ``BasicTransformerBlock``; or, if ``joined`` (text among the keys, DeepFloyd IF), the attention
    itself.
    """

    module: Module
    joined: bool


def is_unet(model: object) -> bool:
    """Return whether a model is of the UNet class of SD 1.x, SD 2.x, SDXL and DeepFloyd IF."""
    from diffusers import UNet2DConditionModel

    return isinstance(model, UNet2DConditionModel)


def image_attention(unet: Module) -> tuple[ModuleBlock, ...]:
    """Return every block of a ``UNet2DConditionModel`` whose self-attention is over the image alone or with text."""
    return tuple(
        ModuleBlock(name, number, scale, module, joined)
        for number, (name, scale, module, joined) in enumerate(_walk(unet))
    )


def _walk(unet: Any) -> Iterator[tuple[str, int, Module, bool]]:
    scale = 1
    for number, block in enumerate(unet.down_blocks):
        yield from _in_block(f"down_blocks.{number}", block, scale)
        scale *= 2 if getattr(block, "downsamplers", None) else 1
    if unet.mid_block is not None:
        yield from _in_block("mid_block", unet.mid_block, scale)
    for number, block in enumerate(unet.up_blocks):
        yield from _in_block(f"up_blocks.{number}", block, scale)
        scale //= 2 if getattr(block, "upsamplers", None) else 1


def _in_block(path: str, block: Module, scale: int) -> Iterator[tuple[str, int, Module, bool]]:
    from diffusers.models.attention import BasicTransformerBlock
    from diffusers.models.attention_processor import Attention

    attentions = getattr(block, "attentions", None)
    for name, module in attentions.named_modules() if attentions is not None else ():
        joined = isinstance(module, Attention) and getattr(module, "add_k_proj", None) is not None
        if (joined or isinstance(module, BasicTransformerBlock)) and not module.only_cross_attention:
            yield f"{path}.attentions.{name}", scale, module, joined
