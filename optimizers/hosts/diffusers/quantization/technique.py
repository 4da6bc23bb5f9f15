"""Quantize int8 on one component, with weights made anew when theirs change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module

from .....core.activity import Summary
from .....core.calls import Args, Kwargs
from .....core.errors import UnsupportedModel
from .....core.kernel_times import file_at_home
from .....core.technique import QKV_FUSION
from ....families import find_family
from ....quantization.kernels import kernel_named
from ....quantization.layer_times import Timings
from ....quantization.layers import LayerChoices, protected_because
from ....quantization.policy import QuantizationPolicy, choose_layers
from ....quantization.settings import QuantizationSettings
from ..components import DENOISER, device_of
from ..host import Host, PipelineTechnique
from ..patches import Patches
from ..qkv_fusion import ComponentQKVFusion
from ..unet import image_attention, is_unet
from .linear import Int8Product


class ComponentQuantization(PipelineTechnique):
    """Quantize int8 on one component.

    The floating point weights stay in memory: they are what :func:`restore` gives back, and what a LoRA is merged into.
    On attaching, raises `UnsupportedModel` if no layer would gain, `BackendUnavailable` if torchao is missing.
    """

    kind, title = QuantizationPolicy.kind, QuantizationPolicy.title
    policy: QuantizationPolicy
    roles = (DENOISER,)

    def __init__(self, settings: QuantizationSettings) -> None:
        super().__init__(settings)
        self._torchao = getattr(settings, "implementation", "auto") == "torchao" and settings.mode == "int8"
        self._products: list[Int8Product] = []
        self._checksum: Tensor | None = None
        self._schedule: object = None

    def attach(self, host: Host, patches: Patches) -> None:
        products, name = list(products_of(host)), host.component.class_name
        if any(product.is_away for product in products):
            raise UnsupportedModel(
                f"Quantize int8: the weights of this {name} are not on a device between its calls (sequential "
                "offloading).",
                "Use enable_model_cpu_offload, which moves a model as a whole, or leave QuantizeInt8 out.",
            )
        choices = self._choose(products, host.component.part)
        self.policy = QuantizationPolicy(self.settings, choices, unit="products", shrinks=False)
        self.policy.require_gain(name)
        for product in products:
            choice = choices.quantized.get(product.layer.name)
            if choice is not None and choice.weight is not None:
                count = partial(self._count, product.layer.name)
                product.put_in(self.policy.kernel, choice.weight.rotation, self._torchao, count, patches)
                self._products.append(product)
        self._checksum = self._fingerprint()

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        """Quantise again where the floating point weights are others than before: a LoRA was merged, the model moved.

        Weights are looked at once for each sampling run, as reading them back waits for the device.
        """
        schedule = getattr(getattr(host.pipeline, "scheduler", None), "timesteps", None)
        moved = any(product.moved for product in self._products)
        if not moved and schedule is not None and schedule is self._schedule:
            return
        self._schedule = schedule
        found = self._fingerprint()
        if moved or self._checksum is None or not torch.equal(found, self._checksum):
            for product in self._products:
                product.quantize()
            self._checksum = found

    def begin_call(self) -> None:
        super().begin_call()
        if self.policy.kernel is not None:
            self.policy.kernel.activity = self.activity

    def summary(self) -> Summary:
        """Return what happened since the technique was put on; why layers were kept also before that."""
        found = super().summary()
        return found if found.details else replace(found, details=self.policy.details())

    def _count(self, name: str) -> None:
        self.activity.use(name)

    def _choose(self, products: list[Int8Product], part: Module) -> LayerChoices:
        settings = replace(self.settings, rotation="off") if self._torchao else self.settings  # torchao knows none
        device, dtype = device_of(part), next(part.parameters()).dtype
        timings = Timings(device, dtype, file_at_home("int8_timings.json"))
        layers = [(product.layer, product.weight) for product in products]
        choices = choose_layers(layers, settings, timings, {}, device)
        if not self._torchao:
            return choices
        # Chosen by the times of our kernels: those of torchao's own layers were not measured.
        return LayerChoices(tuple(replace(choice, timing=None) for choice in choices.all), kernel_named("torchao"))

    def _fingerprint(self) -> Tensor:
        with torch.no_grad():
            sums = [x.weight.flatten()[::97].double().sum() for p in self._products for x in p.layers]
            return torch.stack(sums)


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
