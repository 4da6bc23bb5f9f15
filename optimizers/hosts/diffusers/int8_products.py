"""What is computed in int8: the linear layers of a denoiser, each a product of its own or several in one."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ....core.errors import BackendUnavailable
from ...families.protected import ONE_ROW
from ...quantization.layers import Layer
from ...quantization.rounding import Int8Weight, quantize_weight
from ...quantization.timing import Shape
from .host import Host
from .patches import Patches
from .qkv_fusion import ProjectionFusion
from .unet import image_attention, is_unet

_TEXT_TOKENS = 2 * 77
_LARGE_IMAGE = 4096


class Place:
    """One product: a linear layer, or several whose outputs come out of one product because they are fused.

    Attributes:
        name: path, or the name of the fused group.
        layers: the linear layers.
        layer: as the rule knows it.
    """

    def __init__(self, name: str, layers: tuple[Any, ...], tokens: int | None, group: Any = None) -> None:
        self.name, self.layers, self.group = name, layers, group
        first = layers[0]
        protected = "one row for each image" if re.search(ONE_ROW, name) else ""
        nbytes = sum(layer.weight.nbytes for layer in layers)
        self.layer = Layer(name, first.in_features, sum(x.out_features for x in layers), tokens, nbytes, protected)

    @property
    def shape(self) -> Shape:
        """Its work."""
        return self.layer.shape()

    @property
    def is_away(self) -> bool:
        """Whether its weights are somewhere else at the moment."""
        return any(layer.weight.device.type == "meta" for layer in self.layers)

    def weight(self) -> Tensor:
        """Return all rows of weights, ``[out, in]``."""
        return torch.cat([layer.weight.detach() for layer in self.layers])

    def put_in(self, product: Product, count: Callable[[], None], patches: Patches) -> None:
        """Let the product compute for the layers."""
        if self.group is None:
            layer = self.layers[0]

            def forward(tokens: Tensor, *args: Any, **options: Any) -> Tensor:
                count()
                return product(tokens, 0, 1)

            patches.shadow(layer, "forward", functools.wraps(type(layer).forward)(forward))
            return

        def counted(tokens: Tensor, first: int, last: int) -> Tensor:
            count()
            return product(tokens, first, last)

        self.group.fused.compute_with(counted)


class Product:
    """The int8 weights of one place. Any run of its layers can be computed: rows of a weight are scaled one by one."""

    def __init__(self, place: Place, linear: Callable[..., Tensor], rotation: int) -> None:
        self.layers = place.layers
        self._place, self._linear, self._rotation = place, linear, rotation
        self._weights: dict[tuple[int, int], Any] = {}
        self._seen: tuple[Any, ...] = ()

    def quantize(self) -> None:
        """Make the int8 weights of the layers as they are now."""
        with torch.no_grad(), torch.inference_mode(False):
            weight = self._place.weight()
            sizes = [layer.out_features for layer in self.layers]
            if self._linear is torch.nn.functional.linear:
                make: Callable[[int, int], Any] = functools.partial(torchao_rows, weight)
            else:
                whole = quantize_weight(weight, self._rotation)
                make = functools.partial(_rows, whole)
            starts = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
            # What fused projections ask for: everything, everything after the first, each alone.
            wanted = {(0, len(sizes)), (1, len(sizes)), *((i, i + 1) for i in range(len(sizes)))}
            self._weights = {(first, last): make(starts[first], starts[last]) for first, last in wanted if first < last}
        self._seen = tuple((layer.weight.device, layer.weight.dtype) for layer in self.layers)

    @property
    def moved(self) -> bool:
        """Whether the layers are on another device, or in another dtype, than when they were quantised."""
        return self._seen != tuple((layer.weight.device, layer.weight.dtype) for layer in self.layers)

    def __call__(self, tokens: Tensor, first: int, last: int) -> Tensor:
        """Compute layers ``first`` to ``last - 1``: ``[..., in]`` -> ``[..., their outputs]``."""
        layers = self.layers[first:last]
        bias = layers[0].bias
        if bias is not None and len(layers) > 1:
            bias = torch.cat([layer.bias for layer in layers])
        return self._linear(tokens, self._weights[(first, last)], bias)


def _rows(weight: Int8Weight, first: int, last: int) -> Int8Weight:
    return Int8Weight(weight.values[first:last], weight.scale[first:last], weight.rotation)


def torchao_rows(weight: Tensor, first: int, last: int) -> Any:
    """Return torchao's int8 tensor for some rows of ``weight`` ``[out, in]``.

    Raises:
        BackendUnavailable: if torchao is missing or too old.
    """
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError as error:
        raise BackendUnavailable(
            "QuantizeInt8: implementation is torchao, which is not installed or too old.",
            "pip install --no-deps torchao",
        ) from error
    holder = torch.nn.Sequential(torch.nn.Linear(weight.shape[1], last - first, bias=False, device="meta"))
    holder[0].weight = torch.nn.Parameter(weight[first:last].detach().clone(), requires_grad=False)
    # Its own settings for inductor would be set for the whole process.
    quantize_(holder, Int8DynamicActivationInt8WeightConfig(set_inductor_config=False))
    return holder[0].weight


def places_of(host: Host) -> Iterator[Place]:
    """Yield every linear layer of a denoiser, those of a fused group as one."""
    part = host.component.part
    fusion = host.find(ProjectionFusion.kind)
    groups = fusion.groups if isinstance(fusion, ProjectionFusion) else {}
    fused = {id(layer) for group in groups.values() for layer in group.fused.layers}
    sizes = _token_counts(part)
    for name, group in groups.items():
        yield Place(name, group.fused.layers, _tokens(name, sizes), group)
    for name, layer in part.named_modules():
        # PEFT keeps the layer it wraps as base_layer, and its own small ones beside it.
        if type(layer) is torch.nn.Linear and id(layer) not in fused and ".lora_" not in name:
            yield Place(name, (layer,), _tokens(name, sizes))


def _tokens(name: str, sizes: dict[str, int]) -> int | None:
    if re.search(ONE_ROW, name):
        return 1
    if re.search(r"attn2\.(to_k|to_v)|attn2 k, v", name):
        return _TEXT_TOKENS
    return next((count for place, count in sizes.items() if name.startswith(place)), _LARGE_IMAGE)


def _token_counts(model: Any) -> dict[str, int]:
    """Return the tokens of each transformer of a UNet, for two images of the size it was trained for."""
    if not is_unet(model):
        return {}
    side = model.config.sample_size or 64
    sides = (side, side) if isinstance(side, int) else tuple(side)
    counts = {}
    for block in image_attention(model):
        rows, columns = block.size((sides[0], sides[1]))
        counts[block.name.split(".transformer_blocks")[0]] = 2 * rows * columns
    return counts
