"""Read from a denoiser what could be in int8: its linear layers, each a product of its own or several in one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torch.nn import Linear, Module

from .....core.technique import QKV_FUSION
from ....families import find_family
from ....quantization.layers import protected_because
from ..host import Host
from ..qkv_fusion import ComponentQKVFusion
from ..unet import image_attention, is_unet
from .linear import Int8Product

_TEXT = re.compile(r"attn2\.(to_k|to_v)|attn2 k, v")
_TEXT_TOKENS = 2 * 77


def products_of(host: Host) -> Iterator[Int8Product]:
    """Yield a product for every linear layer of a denoiser, one for those of a fused group."""
    part = host.component.part
    fusion = host.find(QKV_FUSION)
    groups = fusion.groups if isinstance(fusion, ComponentQKVFusion) else {}
    fused = {id(layer) for group in groups.values() for layer in group.layers}
    sizes, family = _token_counts(part), find_family(part)
    for name, group in groups.items():
        layers = tuple(layer for layer in group.layers if isinstance(layer, Linear))
        yield Int8Product(name, layers, _tokens(name, sizes), protected_because(name, family), group)
    for name, layer in part.named_modules():
        # PEFT keeps the layer it wraps as base_layer, and its own small ones beside it.
        if type(layer) is Linear and id(layer) not in fused and ".lora_" not in name:
            yield Int8Product(name, (layer,), _tokens(name, sizes), protected_because(name, family))


def _tokens(name: str, sizes: dict[str, int]) -> int | None:
    """Return how many tokens a layer is given in one call with guidance, where that is known."""
    if _TEXT.search(name):
        return _TEXT_TOKENS
    return next((count for place, count in sizes.items() if name.startswith(place)), None)


def _token_counts(model: Module) -> dict[str, int]:
    """Return the tokens of each transformer of a UNet, for two images of the size it was trained for."""
    if not is_unet(model):
        return {}
    config: Any = model.config
    side = config.sample_size or 64
    sides = (side, side) if isinstance(side, int) else tuple(side)
    counts = {}
    for block in image_attention(model):
        rows, columns = block.size((sides[0], sides[1]))
        counts[block.name.split(".transformer_blocks")[0]] = 2 * rows * columns
    return counts
