"""Fuse QKV on a MODEL: what has to be true of ComfyUI's layers, and joining their weights, quantised ones too."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module

from ....core.activity import Activity
from ....core.shadow import Shadows
from ....core.technique import COMPILATION, find
from ...families import find_layer, names
from ...qkv_fusion.policy import QKVFusion, groups_in, nothing_to_fuse
from ...qkv_fusion.projections import FusedProjections
from ...qkv_fusion.rows import PLAIN, join_rows, refuse_rows, separate_rows
from .compilation.unet import CompileUNet
from .model import describe_model
from .protocols import BaseModel, ModelPatcher
from .stack import ComfyTechnique, ModelCall, Stack

OTHER_FORWARD = "another node has changed how its projections compute (a LoRA in bypass mode, for example)"
STREAMED = "dynamic VRAM brings in the weights of each layer one by one (--disable-dynamic-vram loads the whole model)"
PATCHED_IN_PASSING = "a LoRA is applied to its weights at each use, because the model is only partly loaded"
ELSEWHERE = "its weights are not on the device, because the model is only partly loaded"
UNEQUAL = "some of its projections are quantised and others are not, or differently"

_SAME = ("comfy_cast_weights", "comfy_force_cast_weights", "_full_precision_mm", "layout_type", "quant_format")
"""Attributes of a layer that decide how it computes, which must be the same for all that are computed together."""

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
            remedy = f"Remove the node for this model. It serves {names(lambda family: family.attention)}."
            raise nothing_to_fuse(describe_model(patcher), network, (), remedy)
        notes = ("steps aside while dynamic VRAM streams the weights",) if patcher.is_dynamic() else ()
        super().__init__(QKVFusion(groups, notes))
        self._used: weakref.WeakSet[Module] = weakref.WeakSet()

    def install(self, call: ModelCall, activity: Activity) -> None:
        network = call.model.diffusion_model
        self._used.add(_unwrapped(network))
        compiled = find(call.techniques, COMPILATION)
        by_blocks = isinstance(compiled, CompileUNet) and compiled.by_blocks
        shadows = call.cleanup.enter_context(Shadows())
        for group in _groups_of(network):
            reason = group.prepare(call.sigmas.device)
            if reason is not None:
                activity.fall_back(reason)
                continue
            group.activity = activity
            if by_blocks:  # which share compiled code only if each of them begins with the same counts
                group.activity = Activity()
                call.cleanup.callback(activity.add, group.activity)
            group.put_in(shadows)

    def began(self) -> None:
        super().began()
        self._forget()  # what was found in a call outside of a run

    def ended(self) -> None:
        """Let go of the weights between runs, so that unloading the model frees its memory."""
        super().ended()
        self._forget()

    def _forget(self) -> None:
        for network in self._used:
            for group in _groups_of(network):
                group.forget()

    def unloaded(self, model: BaseModel, successor: Stack | None) -> None:
        """Separate the weights: the model leaves its device, or goes to a clone that may not carry this technique."""
        for group in _found.get(_unwrapped(model.diffusion_model), ()):
            for layer in group.layers:
                for parameter in layer._parameters.values():
                    separate_rows(() if parameter is None else _parts(parameter))


class ModelProjections(FusedProjections):
    """The attention asks these in the place of its layers, without the time that a call of a module takes."""

    def put_in(self, shadows: Shadows) -> None:
        self.reset()
        put: dict[str, Any] = dict(zip(self.attributes, self.functions, strict=True))
        if self.foresee is not None:
            self.inner = self.attention.forward
            put["forward"] = self.foresee
        shadows.put_all(self.attention, put)
        shadows.on_undo(self.reset)

    def look(self, name: str, layer: Module, device: Any) -> tuple[object, ...]:
        state, weight, reason = layer.__dict__, layer._parameters["weight"], None
        hooked = state["_forward_pre_hooks"] or state["_forward_hooks"]
        if name in self.attention.__dict__ or "forward" in state or hooked:
            reason = OTHER_FORWARD
        elif "_v" in state:
            reason = STREAMED
        elif state.get("weight_function") or state.get("bias_function"):
            reason = PATCHED_IN_PASSING
        elif weight is None or weight.device != device:
            reason = ELSEWHERE
        return reason, state.get("comfy_cast_weights"), state.get("comfy_force_cast_weights")

    def refuse(self, weights: Sequence[Any]) -> str | None:
        if len({(type(layer), *[getattr(layer, name, None) for name in _SAME]) for layer in self.layers}) > 1:
            return UNEQUAL
        # Corrections of a layer's input that each layer has for itself (AWQ, static activation scales).
        own = [getattr(layer, name, None) for layer in self.layers for name in ("pre_quant_scale", "input_scale")]
        if any(correction is not None for correction in own):
            return "its projections scale their input each in its own way"
        if len({id(weight) for weight in weights}) < len(weights):
            return "two of its projections are one and the same"
        kinds = {type(weight) for weight in weights}
        if kinds <= set(PLAIN):
            return refuse_rows(weights)
        if not all(_is_int8(weight) for weight in weights):
            listed = ", ".join(sorted(kind.__name__ for kind in kinds))
            return UNEQUAL if len(kinds) > 1 else f"weights of the class {listed} cannot be joined"
        if len({tuple(getattr(weight._params, name, None) for name in _SAME_IN_INT8) for weight in weights}) > 1:
            return UNEQUAL
        if any(weight._params.scale.ndim != 2 for weight in weights):
            return "its weights have one scale for the whole matrix instead of one for each row"
        return next(
            (reason for parts in zip(*map(_parts, weights), strict=True) if (reason := refuse_rows(parts))), None
        )

    def join(self, weights: Sequence[Any]) -> Any:
        joined = [join_rows(parts) for parts in zip(*map(_parts, weights), strict=True)]
        if not _is_int8(weights[0]):
            return joined[0]
        qdata, scale = joined
        params = dataclasses.replace(weights[0]._params, scale=scale, orig_shape=tuple(qdata.shape))
        return type(weights[0])(qdata, weights[0]._layout_cls, params)


def _unwrapped(network: Module) -> Module:
    """Return the network itself: ComfyUI's own compile node puts a wrapper in its place."""
    return getattr(network, "_orig_mod", network)


def _groups_of(network: Module) -> tuple[ModelProjections, ...]:
    """Return all projections of a network that can be computed together; the same objects as long as it lives."""
    network = _unwrapped(network)
    if network not in _found:
        known = ((module, layer) for module in network.modules() if (layer := find_layer(module)) is not None)
        _found[network] = tuple(
            group for module, layer in known for group in groups_in(module, layer, ModelProjections)
        )
    return _found[network]


def _is_int8(weight: Any) -> bool:
    return getattr(weight, "_layout_cls", None) == "TensorWiseINT8Layout"


def _parts(weight: Any) -> Iterator[Tensor]:
    """Yield the tensors that a weight consists of: rows of ``int8_tensorwise`` weights have scales of their own."""
    yield from (weight._qdata, weight._params.scale) if _is_int8(weight) else (weight,)
