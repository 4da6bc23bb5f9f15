"""Read the structure of a UNet: which attention it has, and at what resolution. ldm, sgm and Forge name it alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from torch.nn import Module, ModuleList

from ...families import Block


class WebUIUNet(Protocol):
    """The UNet of SD 1.x, SD 2.x and SDXL, whose rows of layers are alike in ldm, sgm and Forge."""

    input_blocks: ModuleList
    middle_block: Module
    output_blocks: ModuleList


@dataclass(frozen=True)
class WebUIBlock(Block):
    """A transformer block with self-attention over the image; its name is e.g. ``input 4.0``."""

    module: Module


def is_unet(network: object) -> bool:
    """Return whether a network is a UNet with the layout of SD 1.x, SD 2.x and SDXL."""
    return all(hasattr(network, name) for name in WebUIUNet.__annotations__)


def transformer_blocks(network: Module) -> Iterator[tuple[str, int, int, int, Any]]:
    """Yield each transformer block of a UNet with its part, row, number in the row, and how much smaller it is."""
    unet, scale = cast(WebUIUNet, network), 1
    for part, rows in (("input", unet.input_blocks), ("middle", [unet.middle_block]), ("output", unet.output_blocks)):
        for row, layers in enumerate(rows):
            for layer in layers.children():
                kind = type(layer).__name__
                scale = scale * 2 if kind == "Downsample" else scale // 2 if kind == "Upsample" else scale
                for number, block in enumerate(getattr(layer, "transformer_blocks", ())):
                    yield part, row, number, scale, block


def image_attention(network: Module) -> tuple[WebUIBlock, ...]:
    """Return every block whose first attention is over the image."""
    found = (found for found in transformer_blocks(network) if not getattr(found[-1], "disable_self_attn", False))
    return tuple(
        WebUIBlock(f"{part} {row}.{number}", index, scale, block)
        for index, (part, row, number, scale, block) in enumerate(found)
    )
