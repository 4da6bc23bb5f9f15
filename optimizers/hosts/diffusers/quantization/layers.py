"""Read from a denoiser what could be in int8: its linear layers, each a product of its own or several in one."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module

from ....families import find_family
from ....qkv_fusion.projections import FusedProjections
from ....quantization.layers import Layer, protected_because
from ..host import Host
from ..patches import Patches
from ..qkv_fusion import ProjectionFusion
from ..unet import image_attention, is_unet

_TEXT = re.compile(r"attn2\.(to_k|to_v)|attn2 k, v")
_TEXT_TOKENS = 2 * 77

Product = Callable[[Tensor, int, int], Tensor]
"""``(tokens [..., in], first, last)``: computes layers ``first`` to ``last - 1`` -> ``[..., their outputs]``."""


class Place:
    """One product: a linear layer, or several whose outputs come out of one product because they are fused.

    Attributes:
        name: path, or the name of the fused group.
        layers: the linear layers.
        layer: as the rule knows it.
    """

    def __init__(
        self,
        name: str,
        layers: tuple[Linear, ...],
        tokens: int | None,
        protected: str,
        group: FusedProjections | None = None,
    ) -> None:
        self.name, self.layers, self._group = name, layers, group
        outputs, nbytes = sum(layer.out_features for layer in layers), sum(layer.weight.nbytes for layer in layers)
        self.layer = Layer(name, layers[0].in_features, outputs, tokens, nbytes, protected)

    @property
    def is_away(self) -> bool:
        """Whether its weights are somewhere else at the moment."""
        return any(layer.weight.device.type == "meta" for layer in self.layers)

    def weight(self) -> Tensor:
        """Return all rows of weights, ``[out, in]``."""
        return torch.cat([layer.weight.detach() for layer in self.layers])

    def put_in(self, product: Product, patches: Patches) -> None:
        """Let the product compute for the layers."""
        if self._group is not None:
            self._group.compute_with(product)
            return

        def forward(tokens: Tensor, *args: object, **options: object) -> Tensor:
            return product(tokens, 0, 1)

        layer = self.layers[0]
        patches.shadow(layer, "forward", functools.wraps(type(layer).forward)(forward))


def places_of(host: Host) -> Iterator[Place]:
    """Yield every linear layer of a denoiser, those of a fused group as one."""
    part = host.component.part
    fusion = host.find(ProjectionFusion.kind)
    groups = fusion.groups if isinstance(fusion, ProjectionFusion) else {}
    fused = {id(layer) for group in groups.values() for layer in group.layers}
    sizes, family = _token_counts(part), find_family(part)
    for name, group in groups.items():
        layers = tuple(layer for layer in group.layers if isinstance(layer, Linear))
        yield Place(name, layers, _tokens(name, sizes), protected_because(name, family), group)
    for name, layer in part.named_modules():
        # PEFT keeps the layer it wraps as base_layer, and its own small ones beside it.
        if type(layer) is Linear and id(layer) not in fused and ".lora_" not in name:
            yield Place(name, (layer,), _tokens(name, sizes), protected_because(name, family))


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
