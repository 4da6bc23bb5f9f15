"""Fuse QKV on a MODEL: what has to be true of ComfyUI's layers, and joining their weights, quantised ones too."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from itertools import chain
from typing import Any

from torch import Tensor
from torch.nn import Module

from ..core.activity import Activity
from ..core.replaced import computed_by, replacement
from ..core.shadow import Shadows
from ..models.families import family_names, find_layer
from ..qkv_fusion.projections import FusedProjections
from ..qkv_fusion.qkv_policy import QKVFusion, groups_in, nothing_to_fuse
from .run.comfy_technique import ComfyTechnique, ModelCall
from .second_weights.clone import require_plain_weights
from .structure.model_facts import describe_model
from .structure.protocols import BaseModel, ModelPatcher

STREAMED = "dynamic VRAM brings in the weights of each layer one by one (--disable-dynamic-vram loads the whole model)"
PARTLY = "the model is only partly loaded, so that its weights are moved, or a LoRA is applied to them, at each use"
UNEQUAL = "some of its projections are quantised and others are not, or differently"

_SAME = (
    "comfy_cast_weights", "comfy_force_cast_weights", "_full_precision_mm", "layout_type", "quant_format",
    "pre_quant_scale", "input_scale",
)  # fmt: skip
"""Attributes of a layer that decide how it computes, which must be the same for all that are computed together. The
last two are tensors that correct its input (AWQ, static activation scales) and belong to one layer alone."""

_SAME_IN_INT8 = ("orig_dtype", "is_weight", "convrot", "convrot_groupsize", "transposed")
"""Parameters of an ``int8_tensorwise`` weight that must be the same."""

_found: weakref.WeakKeyDictionary[Module, tuple[ModelProjections, ...]] = weakref.WeakKeyDictionary()
"""The groups of each network. They belong to the network, not to a technique, because compiled code is guarded on their
functions: a node that runs again makes a new technique, and nothing may be compiled again for that."""


class ModelQKVFusion(ComfyTechnique[ModelCall]):
    """Fuse QKV on one MODEL, read for its structure only; `UnsupportedModel` if nothing can be computed together."""

    def __init__(self, patcher: ModelPatcher) -> None:
        network = patcher.model.diffusion_model
        groups = _groups_of(network)
        if not groups:
            remedy = f"Remove the node for this model. It serves {family_names(lambda family: family.attention)}."
            raise nothing_to_fuse(describe_model(patcher), network, (), remedy)
        require_plain_weights("Fuse QKV", network, describe_model(patcher))
        notes = ("steps aside while dynamic VRAM streams the weights",) if patcher.is_dynamic() else ()
        super().__init__(QKVFusion(groups, notes))
        self._used: weakref.WeakSet[ModelProjections] = weakref.WeakSet()

    def install(self, call: ModelCall, activity: Activity) -> None:
        alike = any(technique.blocks_share_code for technique in call.techniques)
        shadows = call.cleanup.enter_context(Shadows())
        for group in _groups_of(call.model.diffusion_model):
            self._used.add(group)
            group.activity = activity
            if alike:  # each block begins with the same counts
                group.activity = Activity()
                call.cleanup.callback(activity.add, group.activity)
            group.prepare(call.sigmas.device)
            group.alone[:] = [layer.forward for layer in group.layers]
            group.inner = group.attention.forward
            group.reset()
            shadows.on_undo(group.reset)
            for layer, function in zip(group.layers, group.functions, strict=True):
                shadows.put(layer, "forward", function)
            if group.foresee is not None:
                shadows.put(group.attention, "forward", group.foresee)

    def ended(self) -> None:
        """Let go of the weights between runs, so that unloading the model frees its memory."""
        super().ended()
        for group in self._used:
            group.forget()

    def unloaded(self, model: BaseModel) -> None:
        """Separate the weights: the model leaves its device, or goes to a clone that may not carry this technique."""
        for group in _found.get(_unwrapped(model.diffusion_model), ()):
            group.separate()


class ModelProjections(FusedProjections):
    """Those of ComfyUI's layers, whose weights may be in ``int8_tensorwise``."""

    def look(self, layer: Module, device: Any) -> tuple[object, ...]:
        state, weight = layer.__dict__, layer._parameters.get("weight")
        reason: str | None = computed_by(replacement(layer)) or None
        if reason is None and "_v" in state:
            reason = STREAMED
        elif state.get("weight_function") or state.get("bias_function") or weight is None or weight.device != device:
            reason = reason or PARTLY
        return reason, state.get("comfy_cast_weights"), state.get("comfy_force_cast_weights")

    def refuse(self, weights: Sequence[Any]) -> str | None:
        int8 = [weight._params for weight in weights if _is_int8(weight)]
        alike = {(type(layer), *[getattr(layer, name, None) for name in _SAME]) for layer in self.layers}
        formats = {tuple(getattr(params, name, None) for name in _SAME_IN_INT8) for params in int8}
        if len(alike) > 1 or len(formats) > 1 or 0 < len(int8) < len(weights):
            return UNEQUAL
        if any(params.scale.ndim != 2 for params in int8):
            return "its weights have one scale for the whole matrix instead of one for each row"
        return None if int8 else super().refuse(weights)

    def parts(self, weight: Any) -> tuple[Tensor, ...]:
        return (weight._qdata, weight._params.scale) if _is_int8(weight) else (weight,)

    def rebuilt(self, weight: Any, parts: Sequence[Tensor]) -> Any:
        if not _is_int8(weight):
            return parts[0]
        qdata, scale = parts
        params = dataclasses.replace(weight._params, scale=scale, orig_shape=tuple(qdata.shape))
        return type(weight)(qdata, weight._layout_cls, params)


def _unwrapped(network: Module) -> Module:
    """Return the network itself: ComfyUI's own compile node puts a wrapper in its place."""
    return getattr(network, "_orig_mod", network)


def _groups_of(network: Module) -> tuple[ModelProjections, ...]:
    """Return all projections of a network that can be computed together; the same objects as long as it lives."""
    network = _unwrapped(network)
    if network not in _found:
        known = ((module, layer) for module in network.modules() if (layer := find_layer(module)) is not None)
        _found[network] = tuple(chain.from_iterable(groups_in(*each, ModelProjections) for each in known))
    return _found[network]


def _is_int8(weight: Any) -> bool:
    return getattr(weight, "_layout_cls", None) == "TensorWiseINT8Layout"
