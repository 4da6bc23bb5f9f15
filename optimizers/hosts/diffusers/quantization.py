"""Int8 linear layers in diffusers models: which ones is the rule of ``optimizers/quantization``, and so is the product."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...activity import Activity, Summary
from ...errors import BackendUnavailable, UnsupportedModel, require_choice
from ...quantization.kernels import Kernel, available, weight_only_linear
from ...quantization.layers import Chooser, Decisions, Layer, Tokens
from ...quantization.rounding import Int8Weight
from ...quantization.settings import QuantizationSettings
from ...quantization.timing import Shape, Timer, fastest
from .components import DENOISER, Component
from .fusion import ProjectionFusion
from .host import Host, Technique
from .patches import Patches
from .unet import image_attention, is_unet

IMPLEMENTATIONS = ("auto", "torchao")

_ONE_ROW = re.compile(r"time_emb|add_embedding|class_embedding|time_text_embed|norm\w*\.linear$|encoder_hid_proj")
_TEXT_TOKENS = 2 * 77
_LARGE_IMAGE = 4096


@dataclass(frozen=True)
class QuantizeInt8(QuantizationSettings):
    """Which layers compute in int8: the settings of the node Quantize int8, and one more.

    Attributes:
        implementation: ``auto`` takes the kernel that is fastest on the device; ``torchao`` torchao's ``quantize_``.

    Raises:
        InvalidSetting: as for ``QuantizationSettings``.
    """

    implementation: str = "auto"

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require_choice("implementation", self.implementation, IMPLEMENTATIONS)


class Int8Layers(Technique):
    """Quantize int8 on one component.

    The floating point weights stay in memory: they are what :func:`restore` gives back, and what a LoRA is merged into.

    Raises:
        UnsupportedModel: on attaching, if no layer would gain.
        BackendUnavailable: on attaching, if torchao is asked for and not there.
    """

    kind = "int8"
    order = 30  # after the projections were fused: the larger product is the one to quantise
    title = "Quantize int8"
    roles = (DENOISER,)

    def __init__(self, settings: QuantizationSettings) -> None:
        super().__init__()
        self.settings = settings
        self.decisions = Decisions(())
        self.kernel: Kernel | None = None
        self._products: dict[str, _Product] = {}
        self._checksum: Tensor | None = None
        self._schedule: Any = None

    def describe(self) -> str:
        """Return how many layers are in int8 and what computes them."""
        by = self.kernel.name if self.kernel is not None else getattr(self.settings, "implementation", "weight only")
        kept: dict[str, int] = {}
        for verdict in self.decisions.kept:
            kept[verdict.reason] = kept.get(verdict.reason, 0) + 1
        rest = "".join(f"; {count} kept: {reason}" for reason, count in kept.items())
        return f"{self.settings.describe()}: {len(self._products)} products in int8 ({by}){rest}"

    def attach(self, host: Host, patches: Patches) -> None:
        """Choose, quantise, and shadow the forward of the layers chosen."""
        part = host.component.part
        places = list(_places(host))
        dtype = next(part.parameters()).dtype
        self._choose(host.component, places, dtype)
        chosen = self.decisions.quantized
        if not chosen:
            raise UnsupportedModel(
                f"Quantize int8: none of the {len(places)} linear layers of this {host.component.class_name} gains "
                f"from int8 here. {self.describe()}",
                "Leave it out, or name layers with include.",
            )
        for place in places:
            verdict = chosen.get(place.name)
            if verdict is None:
                continue
            assert verdict.weight is not None
            product = _Product(place, self._linear(), verdict.weight.rotation)
            product.quantize()
            self._products[place.name] = product
            place.put_in(product, lambda name=place.name: self.activity.use(name), patches)
        self._checksum = self._fingerprint()

    def before(self, host: Host, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Quantise again where the floating point weights are others than before: a LoRA was merged, the model moved.

        Weights are looked at once for each sampling run, as reading them back waits for the device.
        """
        schedule = getattr(getattr(host.pipeline, "scheduler", None), "timesteps", None)
        moved = any(product.moved for product in self._products.values())
        if not moved and schedule is not None and schedule is self._schedule:
            return
        self._schedule = schedule
        found = self._fingerprint()
        if moved or self._checksum is None or not torch.equal(found, self._checksum):
            for product in self._products.values():
                product.quantize()
            self._checksum = found

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``int8 in 560 products of 10 model calls``."""
        text = f"int8 in {activity.use_count} products of {activity.model_calls} model calls"
        return Summary("active" if activity.use_count else "inactive", text)

    def _choose(self, component: Component, places: list[_Place], dtype: torch.dtype) -> None:
        settings = self.settings
        if getattr(settings, "implementation", "auto") == "torchao":
            settings = replace(settings, rotation="off")  # torchao knows none
        device = places[0].layers[0].weight.device if places else torch.device("cpu")
        timings = timer = None
        if settings.mode == "int8":
            kernels, _ = available(device)
            shape = max((place.shape for place in places), key=lambda s: s.tokens * s.inputs * s.outputs)
            self.kernel, _ = fastest(kernels, shape, device, dtype)
            timer = Timer(self.kernel, device, dtype, _timings_file())
            timings = timer.time
        chooser = Chooser(settings, timings, Tokens(), device)
        with torch.inference_mode():
            verdicts = [chooser.decide(place.layer, place.weight) for place in places]
        if timer is not None:
            timer.remember()
        self.decisions = Decisions(tuple(verdicts))
        if getattr(settings, "implementation", "auto") == "torchao":
            self.kernel = None

    def _linear(self) -> Callable[..., Tensor]:
        if self.settings.mode == "weight_only":
            return weight_only_linear
        if self.kernel is not None:
            return self.kernel.linear
        return torch.nn.functional.linear

    def _fingerprint(self) -> Tensor:
        with torch.no_grad():
            sums = [layer.weight.flatten()[::97].double().sum() for p in self._products.values() for layer in p.layers]
            return torch.stack(sums)


class _Place:
    """One product: a linear layer, or several whose outputs come out of one product because they are fused.

    Attributes:
        name: path, or the name of the fused group.
        layers: the linear layers.
        layer: as the rule knows it.
    """

    def __init__(self, name: str, layers: tuple[Any, ...], tokens: int | None, group: Any = None) -> None:
        self.name, self.layers, self.group = name, layers, group
        first = layers[0]
        protected = "one row for each image" if _ONE_ROW.search(name) else ""
        nbytes = sum(layer.weight.nbytes for layer in layers)
        self.layer = Layer(name, first.in_features, sum(x.out_features for x in layers), tokens, nbytes, protected)

    @property
    def shape(self) -> Shape:
        """Its work."""
        return self.layer.shape()

    def weight(self) -> Tensor:
        """Return all rows of weights, ``[out, in]``."""
        return torch.cat([layer.weight.detach() for layer in self.layers])

    def put_in(self, product: _Product, count: Callable[[], None], patches: Patches) -> None:
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


class _Product:
    """The int8 weights of one place. Any run of its layers can be computed: rows of a weight are scaled one by one."""

    def __init__(self, place: _Place, linear: Callable[..., Tensor], rotation: int) -> None:
        self.layers = place.layers
        self._place, self._linear, self._rotation = place, linear, rotation
        self._weights: dict[tuple[int, int], Any] = {}
        self._seen: tuple[Any, ...] = ()

    def quantize(self) -> None:
        """Make the int8 weights of the layers as they are now."""
        from ...quantization.rounding import quantize_weight

        with torch.no_grad(), torch.inference_mode(False):
            weight = self._place.weight()
            sizes = [layer.out_features for layer in self.layers]
            if self._linear is torch.nn.functional.linear:
                make: Callable[[int, int], Any] = functools.partial(_torchao_rows, weight)
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


def _torchao_rows(weight: Tensor, first: int, last: int) -> Any:
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


def _places(host: Host) -> Iterator[_Place]:
    """Yield every linear layer of a denoiser, those of a fused group as one."""
    part = host.component.part
    fusion = host.find(ProjectionFusion.kind)
    groups = fusion.groups if isinstance(fusion, ProjectionFusion) else {}
    fused = {id(layer) for group in groups.values() for layer in group.fused.layers}
    sizes = _token_counts(part)
    for name, group in groups.items():
        yield _Place(name, group.fused.layers, _tokens(name, sizes), group)
    for name, layer in part.named_modules():
        # PEFT keeps the layer it wraps as base_layer, and its own small ones beside it.
        if type(layer) is torch.nn.Linear and id(layer) not in fused and ".lora_" not in name:
            yield _Place(name, (layer,), _tokens(name, sizes))


def _tokens(name: str, sizes: dict[str, int]) -> int | None:
    if _ONE_ROW.search(name):
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


def _timings_file() -> Path:
    return Path.home() / ".cache" / "paceline" / "int8_timings.json"
