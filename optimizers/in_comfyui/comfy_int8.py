"""Quantize int8 on one MODEL: chosen layer by layer when the node runs, then on a second BaseModel."""

from __future__ import annotations

from collections.abc import Callable, Set
from types import MethodType
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor
from torch.nn import Linear, Module

from ..core.activity import Activity
from ..core.errors import UnsupportedModel
from ..core.phrases import phrase
from ..core.shadow import Shadows, replacement
from ..models.families import find_family
from ..quantization.int8_policy import QuantizationPolicy
from ..quantization.int8_settings import QuantizationSettings
from ..quantization.layer_choice import Layer, LayerChoice, choose_layers, choose_unread, quantizing_device
from ..quantization.layer_times import Timings
from .int8_linear import KERNEL, MODEL_PREFIX, Network, both_layers, int8_layers, modules_together, quantized_linear
from .run.comfy_technique import ModelCall
from .second_weights.clone import WeightPlan, require_plain_weights
from .second_weights.swap import WeightTechnique, original, unload
from .structure.model_facts import describe_model, inference_dtype, require_model
from .structure.protocols import ModelPatcher
from .structure.user_folder import user_folder


class Int8Quantization(WeightTechnique):
    """Some linear layers in int8, in ComfyUI's own format."""

    policy: QuantizationPolicy

    def __init__(self, policy: QuantizationPolicy) -> None:
        super().__init__(policy)
        self._network = Network()
        self._networks: WeakSet[Network] = WeakSet()
        self._found: WeakKeyDictionary[Module, tuple[Network, list[tuple[Module, MethodType]]]] = WeakKeyDictionary()

    def plan(self, plan: WeightPlan) -> None:
        self._network = Network()
        self._networks.add(self._network)
        plan.config.quant_config = {"mixed_ops": True}

    def replace_module(self, name: str, module: Module, plan: WeightPlan) -> Module | None:
        choice = self.policy.choices.quantized.get(name.removeprefix(MODEL_PREFIX))
        if choice is None or choice.weight is None or not isinstance(module, Linear):
            return None
        weight_only = self.policy.settings.mode == "weight_only"
        return quantized_linear(choice.weight, module.bias, plan.compute_dtype, weight_only, self._network)

    def install(self, call: ModelCall, activity: Activity) -> None:
        network = call.model.diffusion_model
        if network not in self._found:  # walking through all modules takes milliseconds
            shared = (getattr(layer, "network", None) for layer in int8_layers(network))
            self._found[network] = (next(filter(None, shared), Network()), [*modules_together(network)])
        counter, together = self._found[network]
        counter.activity = activity
        call.count(self.kind, counter)
        shadows = call.cleanup.enter_context(Shadows())
        for module, forward in together:
            if replacement(module) is None:  # else another node computes it, and may ask its layers
                shadows.put(module, "forward", forward)

    def began(self) -> None:
        """Look for the layers anew: another node may have exchanged modules."""
        super().began()
        self._found.clear()
        for network in self._networks:
            network.in_run = True

    def ended(self) -> None:
        super().ended()
        for network in self._networks:
            network.in_run = False


def quantize(patcher: ModelPatcher, settings: QuantizationSettings) -> Int8Quantization:
    """Return the technique for a MODEL (with LoRAs or not, quantised by us before or not), its int8 weights made.

    Raises `UnsupportedModel` if nothing can be in int8 or would gain, `BackendUnavailable` if the device that was asked
    for is not there.
    """
    require_model(patcher)
    home = original(patcher)
    require_plain_weights("Quantize int8", home.model, describe_model(home))
    unload(home)
    timings, layers = timings_of(home), _linear_layers(home)
    device = quantizing_device(settings.device, timings.device)
    each = _each_layer(len(layers), home.offload_device)
    read = [(layer, module.weight.detach) for layer, module in layers]
    policy = QuantizationPolicy(settings, choose_layers(read, settings, device, timings, each))
    policy.require_gain(describe_model(home))
    return Int8Quantization(policy)


def int8_gains(patcher: ModelPatcher) -> bool:
    """Return whether Quantize int8 would find at least the MODEL's largest layer quicker in int8, measured."""
    home = original(patcher)
    try:
        require_plain_weights("Quantize int8", home.model, describe_model(home))
        layers = [layer for layer, _ in _linear_layers(home) if not layer.protected]
    except UnsupportedModel:
        return False  # no linear layers, or quantised already
    timings = timings_of(home)
    largest = max(layers, key=lambda layer: layer.inputs * layer.outputs, default=None)
    return largest is not None and not choose_unread(largest, QuantizationSettings(), timings.time).reason


def timings_of(patcher: ModelPatcher) -> Timings:
    """Return the times of int8 layers that are kept for a MODEL's device and dtype."""
    device = torch.device(patcher.load_device)
    return Timings(device, inference_dtype(patcher), KERNEL, both_layers, user_folder("int8_timings.json"))


def _each_layer(count: int, rest: torch.device) -> Callable[[LayerChoice], LayerChoice]:
    """Return the function to call after each of ``count`` layers: it shows progress, stops if cancelled, makes room."""
    import comfy.model_management
    import comfy.utils

    progress = comfy.utils.ProgressBar(count)

    def after(choice: LayerChoice) -> LayerChoice:
        progress.update(1)
        comfy.model_management.throw_exception_if_processing_interrupted()
        return choice.on(rest)  # where the model rests

    return after


def _linear_layers(patcher: ModelPatcher) -> list[tuple[Layer, Linear]]:
    """Return the linear layers of a MODEL's network with their modules.

    Its weights must be those of the file (`swap.original`). Raises `UnsupportedModel` if the network has none, or is
    quantised already.
    """
    family = find_family(patcher.model.diffusion_model)
    found: list[tuple[Layer, Linear]] = []
    formats: set[str] = set()
    for name, module in patcher.model.diffusion_model.named_modules():
        weight = getattr(module, "weight", None)
        if (found_format := getattr(weight, "_layout_cls", None)) is not None:
            formats.add(str(found_format))
        if isinstance(module, Linear) and isinstance(weight, Tensor) and weight.ndim == 2:
            found.append((Layer.of(name, weight, family), module))
    refuse_quantised(patcher, formats)
    if not found:
        raise UnsupportedModel(
            f"The network of this {describe_model(patcher)} has no linear layers that could be in int8.",
            "Remove the node for this model.",
        )
    return found


def refuse_quantised(patcher: ModelPatcher, formats: Set[str]) -> None:
    """Raise `UnsupportedModel` if layers of a MODEL are quantised in ``formats``."""
    if formats:
        names = ", ".join(sorted(formats))
        raise UnsupportedModel(
            f"This {describe_model(patcher)} comes from a file that is quantised already ({names}).",
            "Remove the node: ComfyUI computes such a file itself. To choose layers here, load the full-precision file "
            "(fp16, bf16 or fp32).",
            phrase("the file is quantised already"),
        )
