"""Quantize int8 on one MODEL: chosen layer by layer when the node runs, then on a second BaseModel."""

from __future__ import annotations

from collections.abc import Callable, Set
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.nn import Linear, Module

from .....core.activity import Activity, Summary
from .....core.errors import UnsupportedModel
from .....core.others import replacement
from .....core.phrases import phrase
from .....core.shadow import Shadows
from .....core.technique import COMPILATION, find
from ....quantization.kernels import available
from ....quantization.layer_times import Timings
from ....quantization.layers import (
    Chooser,
    Layer,
    LayerChoice,
    LayerChoices,
    choose_kernel,
    choose_layers,
    largest_shape,
    quantizing_device,
)
from ....quantization.policy import QuantizationPolicy, before_run
from ....quantization.settings import QuantizationSettings
from ..runtime.paths import user_folder
from ..runtime.technique import ModelCall
from ..structure.model import describe_model, inference_dtype, require_model
from ..structure.protocols import BaseModel, ModelPatcher
from ..weights.clone import WeightPlan, require_plain_weights
from ..weights.swap import WeightTechnique, original, unload
from .input_act import Together, modules_together
from .layers import linear_layers, observe, refuse_other_formats
from .linear import FORMAT, MODEL_PREFIX, Network, both_layers, existing_weight, int8_layers, is_int8, quantized_linear


class Int8Quantization(WeightTechnique):
    """Some linear layers in int8, in ComfyUI's own format."""

    policy: QuantizationPolicy

    def __init__(self, policy: QuantizationPolicy) -> None:
        super().__init__(policy)
        self._network = Network()
        self._networks: WeakSet[Network] = WeakSet()
        self._found: WeakKeyDictionary[Module, tuple[Network, tuple[Together, ...]]] = WeakKeyDictionary()

    def plan(self, plan: WeightPlan) -> None:
        self._network = Network()
        self._networks.add(self._network)
        plan.config.quant_config = {"mixed_ops": True}

    def replace_module(self, name: str, module: Module, plan: WeightPlan) -> Module | None:
        kernel = self.policy.kernel
        if is_int8(module):  # from a file in int8: the same weights, our kernel
            weight, weight_only = existing_weight(module)
            kernel = None if weight_only else kernel
            return quantized_linear(weight, module.bias, plan.compute_dtype, kernel, self._network)
        choice = self.policy.choices.quantized.get(name.removeprefix(MODEL_PREFIX))
        if choice is None or choice.weight is None or not isinstance(module, Linear):
            return None
        return quantized_linear(choice.weight, module.bias, plan.compute_dtype, kernel, self._network)

    def install(self, call: ModelCall, activity: Activity) -> None:
        network = call.model.diffusion_model
        if network not in self._found:  # walking through all modules takes milliseconds
            shared = (getattr(layer, "network", None) for layer in int8_layers(network))
            self._found[network] = (next(filter(None, shared), Network()), tuple(modules_together(network)))
        counter, together = self._found[network]
        counter.activity = activity
        call.count(self.kind, counter)
        compiled = find(call.techniques, COMPILATION) is not None
        shadows = call.cleanup.enter_context(Shadows())
        for module, asking, counting in together:
            if replacement(module) is not None:  # another node computes it, and may ask its layers
                continue
            shadows.put(module, "forward", asking if compiled or counting is None else counting)

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
    timings = timings_of(home)
    if found := int8_layers(home.model.diffusion_model):
        for layer in found:
            existing_weight(layer)  # raises where it cannot be computed with
        kernel, notes = choose_kernel((), timings)
        timings.save()
        return Int8Quantization(QuantizationPolicy(settings, LayerChoices((), kernel, notes)))
    tokens, source = observe(home)
    layers = linear_layers(home, tokens)
    note, device = f"token counts of {source}", quantizing_device(settings.device, timings.device)
    each = _each_layer(len(layers), home.offload_device)
    read = [(layer, module.weight.detach) for layer, module in layers]
    policy = QuantizationPolicy(settings, choose_layers(read, settings, device, timings, note, each))
    policy.require_gain(describe_model(home))
    return Int8Quantization(policy)


def int8_gains(patcher: ModelPatcher) -> bool:
    """Return whether Quantize int8 would find at least the MODEL's largest layer quicker in int8, measured."""
    home = original(patcher)
    try:
        require_plain_weights("Quantize int8", home.model, describe_model(home))
        layers = [layer for layer, _ in linear_layers(home, {})]
    except UnsupportedModel:
        return False  # no linear layers, or quantised already
    timings = timings_of(home)
    timing = timings.time(choose_kernel(layers, timings)[0], largest_shape(layers))
    timings.save()
    return timing.speedup >= QuantizationSettings().thresholds.min_speedup


def timings_of(patcher: ModelPatcher) -> Timings:
    """Return the times of int8 layers that are kept for a MODEL's device and dtype."""
    device, dtype = torch.device(patcher.load_device), inference_dtype(patcher)
    return Timings(device, dtype, user_folder("int8_timings.json"), both_layers)


def _each_layer(count: int, rest: torch.device) -> Callable[[LayerChoice], LayerChoice]:
    """Return what to do after each of ``count`` layers: show how far it is, stop if the user wants to, make room."""
    import comfy.model_management
    import comfy.utils

    progress = comfy.utils.ProgressBar(count)

    def after(choice: LayerChoice) -> LayerChoice:
        progress.update(1)
        comfy.model_management.throw_exception_if_processing_interrupted()
        return choice.on(rest)  # where the model rests

    return after


_SEEN: WeakKeyDictionary[BaseModel, list[Layer]] = WeakKeyDictionary()
"""Layers of the networks that were looked at: SDXL's takes about two seconds, and a page asks at each change."""


def said_before(patcher: ModelPatcher, settings: QuantizationSettings, formats: Set[str]) -> Summary:
    """Return what is known before a run; nothing is timed, and no weight is read, so they may be on ``meta``.

    ``formats``: those that layers of the file are quantised in. Raises as `quantize` where it is known that it will.
    """
    timings = timings_of(patcher)
    if FORMAT in formats:
        return Summary("waiting", phrase("computes the file's own int8 layers with the kernel that is quickest here"))
    refuse_other_formats(patcher, formats)
    if patcher.model not in _SEEN:
        _SEEN[patcher.model] = [layer for layer, _ in linear_layers(patcher, observe(patcher)[0])]
    layers = _SEEN[patcher.model]
    kernels, largest = available(timings.device)[0], largest_shape(layers)
    timed = [kernel for kernel in kernels if kernel.fast and timings.known(kernel, largest) is not None]
    kernel = timings.fastest(timed, largest)[0] if timed else None
    chooser = Chooser(
        settings,
        None if kernel is None else lambda shape: timings.known(kernel, shape),
        quantizing_device(settings.device, timings.device),
    )
    choices = [chooser.before(layer) for layer in layers]
    return before_run(settings, choices, describe_model(patcher))
