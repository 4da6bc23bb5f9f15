"""Quantize int8 on one component: the layers that our rule chooses, in torchao's int8.

torchao puts a tensor of its own in the place of each weight. The floating point weights wait in main memory: whoever
reads or changes weights through the component finds these, and so does :func:`restore`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter
from torch.nn.functional import linear

from ..core.activity import Activity
from ..core.errors import BackendUnavailable, UnsupportedModel
from ..core.not_copied import Args, Function, Kwargs
from ..models.families import find_family
from ..quantization.int8_policy import LAYERS, QuantizationPolicy
from ..quantization.int8_settings import QuantizationSettings
from ..quantization.layer_choice import Layer, choose_layers, quantizing_device
from .components import DENOISER, device_of, require_plain_weights
from .host import Host
from .patches import Patches
from .pipeline_technique import PipelineTechnique

READING = ("state_dict",)
CHANGING = ("load_state_dict", "add_adapter", "load_lora_adapter", "fuse_lora", "unfuse_lora", "fuse_qkv_projections")
"""Methods of a component that read its weights (``save_pretrained`` does through them), and that change them."""

TAKEN = "another weight has taken the place of the int8 one"
NO_GRADIENTS = "int8 weights get no gradients: only layers beside them, as a LoRA, are trained until restore"


@dataclass(frozen=True)
class QuantizeInt8(QuantizationSettings):
    """Which layers are in torchao's int8: the settings of the node Quantize int8. Needs torchao."""


class ComponentQuantization(PipelineTechnique):
    """Quantize int8 on one component.

    On attaching, raises `UnsupportedModel` if no layer may be in int8, `BackendUnavailable` if torchao is missing.
    """

    kind, title = QuantizationPolicy.kind, QuantizationPolicy.title
    policy: QuantizationPolicy
    roles = (DENOISER,)

    def attach(self, host: Host, patches: Patches) -> None:
        self._layers: list[_Int8Layer] = []
        self._merged = weakref.WeakSet[Module]()
        part, title, settings = host.component.part, host.component.class_name, self.settings
        require_plain_weights(self.title, host.component)
        # PEFT keeps the layer that it wraps as base_layer, and its own small ones beside it.
        layers = {name: one for name, one in part.named_modules() if type(one) is Linear and ".lora_" not in name}
        family = find_family(part)
        if any(layer.weight.device.type == "meta" for layer in layers.values()):
            raise UnsupportedModel(
                f"Quantize int8: the weights of this {title} are not on a device between its calls (sequential "
                "offloading).",
                "Use enable_model_cpu_offload, which moves a model as a whole, or leave QuantizeInt8 out.",
            )
        config, device = _config(settings.mode), quantizing_device(settings.device, device_of(part))
        read = [(Layer.of(name, each.weight, family), each.weight.detach) for name, each in layers.items()]
        # Of our own int8 weights the sizes are enough: torchao makes those that compute.
        found = choose_layers(read, settings, device, each=lambda choice: choice.on(torch.device("meta")))
        found = replace(found, kernel="torchao" if settings.mode == "int8" else "")
        self.policy = QuantizationPolicy(settings, found)
        self.policy.require_gain(title)

        def take_out() -> None:
            for layer in self._layers:
                layer.take_out()
            self._layers = []
            for module in self._merged:
                module.__dict__.pop("unmerge", None)

        patches.on_undo(take_out)
        for name in self.policy.choices.quantized:
            layer = _Int8Layer(layers[name], part, config)
            self._layers.append(layer)
            patches.wrap(layers[name], "forward", functools.partial(self._counted, layer))
        for name in (*READING, *CHANGING):
            if hasattr(part, name):
                patches.method(name, functools.partial(self._in_floating_point, part, changing=name in CHANGING))
        self._watch_merged(part)

    def replaced(self) -> Iterator[tuple[Tensor, Tensor]]:
        for layer in self._layers:
            yield from layer.replaced()

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        for layer in self._layers:
            layer.is_ours = layer.is_in
        if torch.is_grad_enabled() and host.component.part.training:
            self.activity.fall_back(NO_GRADIENTS)

    def _counted(self, layer: _Int8Layer, forward: Function) -> Function:
        @functools.wraps(forward)
        def run(*args: Any, **kwargs: Any) -> object:
            result = forward(*args, **kwargs)
            if torch.is_grad_enabled() and args and args[0].requires_grad and not result.requires_grad:
                weight: Any = layer.layer.weight  # torchao passes no gradient on where it multiplies in int8
                floating = linear(args[0], weight.dequantize().to(args[0].dtype), layer.layer.bias)
                result = floating + (result - floating).detach()
            if layer.is_ours:
                self.activity.use(LAYERS)
            else:
                self.activity.fall_back(TAKEN)
            return result

        return run

    @contextmanager
    def block(self, kwargs: Kwargs) -> Iterator[Kwargs]:
        """Count a block by itself: to code compiled for all blocks of a class each then looks like the first."""
        call, self.activity = self.activity, Activity()
        try:
            yield kwargs
        finally:
            call.add(self.activity)
            self.activity = call

    def _in_floating_point(self, part: Module, method: Any, changing: bool) -> Any:
        @functools.wraps(method)
        def run(*args: object, **kwargs: object) -> object:
            # On the device of the model only where they are to be changed.
            with _floating(self._layers, moved=changing, anew=changing):
                result = method(*args, **kwargs)
            if changing:
                self._watch_merged(part)
            return result

        return run

    def _watch_merged(self, part: Module) -> None:
        """Have floating point weights in where a pipeline takes a merged LoRA out: it asks PEFT's layers themselves."""

        def unmerge(module: Any) -> None:
            with _floating([layer for layer in self._layers if layer.layer is module.get_base_layer()]):
                type(module).unmerge(module)

        for module in part.modules():
            if getattr(module, "merged_adapters", None) and module not in self._merged:
                module.__dict__["unmerge"] = MethodType(unmerge, module)  # a copy has its own layer in it
                self._merged.add(module)


class _Int8Layer:
    """A linear layer of ``part`` whose weight is in int8, and the parameter that it had before, kept in main memory.

    ``is_ours``: whether it was in int8 when the call began, for code that is compiled.
    """

    def __init__(self, layer: Linear, part: Module, config: Any) -> None:
        self.layer, self._part, self._config = layer, part, config
        self._floating, self._int8, self._dtype = layer.weight, layer.weight, layer.weight.dtype
        self._is_out = self.is_ours = True
        self.put_in(anew=True)

    @property
    def is_in(self) -> bool:
        """Whether the layer has an int8 weight: `_apply` of a module makes new parameters."""
        return type(self.layer.weight) is type(self._int8)

    def replaced(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the int8 weight with the one that it replaces, in the dtype that the model was converted to since."""
        if self.is_in:
            before, now = self._floating, self._computed_in()
            same = now == self._dtype
            yield self.layer.weight, before if same else Parameter(before.detach().to(now), before.requires_grad)

    def put_in(self, anew: bool) -> None:
        """Put in the int8 weight that was taken out; ``anew`` makes it of the weight that the layer has now."""
        if not self._is_out:
            return
        self._is_out = False
        if not anew:
            self.layer.weight = self._int8
            return
        from torchao.quantization import quantize_

        layer = self.layer
        self._floating, self._dtype = layer.weight, self._computed_in()
        with torch.no_grad(), torch.inference_mode(False):
            quantize_(layer, self._config, lambda *_: True)
        layer.__dict__.pop("extra_repr", None)  # bound to this layer, in a copy of it too
        self._int8 = layer.weight
        self._floating.data = self._floating.data.cpu()

    def take_out(self, moved: bool = True) -> None:
        """Put in the floating point weight, unless another weight has taken the place of the int8 one.

        In the dtype that the model was converted to since; ``moved``: where the int8 one is now.
        """
        if not self.is_in:
            return
        self._is_out, self._int8, now = True, self.layer.weight, self._computed_in()
        dtype = self._floating.dtype if now == self._dtype else now
        device = self._int8.device if moved else self._floating.device
        self._floating.data, self._dtype = self._floating.data.to(device, dtype), now
        self.layer.weight = self._floating

    def _computed_in(self) -> torch.dtype:
        # Converting a model does not change what torchao's tensors say of themselves.
        plain = (each for each in (self.layer.bias, *self._part.parameters()) if type(each) is Parameter)
        return next(each.dtype for each in plain)


@contextmanager
def _floating(layers: Sequence[_Int8Layer], moved: bool = True, anew: bool = True) -> Iterator[None]:
    """Have the floating point weights of layers in: see `_Int8Layer.take_out` and `_Int8Layer.put_in`."""
    try:
        for layer in layers:
            layer.take_out(moved)
        yield
    finally:
        for layer in layers:
            layer.put_in(anew)


def _config(mode: str) -> Any:
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig
    except ImportError as error:
        raise BackendUnavailable(
            "QuantizeInt8 needs torchao, which is not installed or too old.", "pip install --no-deps torchao"
        ) from error
    kind = Int8DynamicActivationInt8WeightConfig if mode == "int8" else Int8WeightOnlyConfig
    return kind(set_inductor_config=False)  # its own settings for inductor would be set for the whole process
