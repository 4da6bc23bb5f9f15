"""Fuse QKV on a MODEL: what has to be true of ComfyUI's layers, and joining their weights, quantised ones too."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from ....core.activity import Activity
from ....core.shadow import Shadows
from ....core.technique import COMPILATION, find
from ...compilation.policy import CompilePolicy
from ...families import find_layer, names
from ...qkv_fusion.fusion import QKVFusion, groups_in, nothing_to_fuse, refuse_layers
from ...qkv_fusion.projections import FusedProjections, place_of
from ...qkv_fusion.rows import PLAIN, join_rows, refuse_rows, separate_rows
from .model import describe_model
from .protocols import BaseModel, ModelPatcher
from .stack import ComfyTechnique, ModelCall, Stack

OTHER_FORWARD = "another node has changed how its projections compute (a LoRA in bypass mode, for example)"
STREAMED = "dynamic VRAM brings in the weights of each layer one by one (--disable-dynamic-vram loads the whole model)"
PATCHED_IN_PASSING = "a LoRA is applied to its weights at each use, because the model is only partly loaded"
ELSEWHERE = "its weights are not on the device, because the model is only partly loaded"
UNEQUAL = "some of its projections are quantised and others are not, or differently"

# What decides how a layer of ComfyUI computes; it must be the same for all that are computed together. Loading may
# change the first two.
_LOADED = ("comfy_cast_weights", "comfy_force_cast_weights")
_SETTINGS = (*_LOADED, "_full_precision_mm", "layout_type", "quant_format")
# Corrections of a layer's input that each layer has for itself (AWQ, static activation scales).
_OF_ITS_OWN = ("pre_quant_scale", "input_scale")

_found: weakref.WeakKeyDictionary[Module, _Groups] = weakref.WeakKeyDictionary()
"""The groups of each network. They belong to the network, not to a technique, because compiled code is guarded on their
functions: a node that runs again makes a new technique, and nothing may be compiled again for that."""


class ModelQKVFusion(ComfyTechnique[ModelCall]):
    """Fuse QKV on one MODEL, read for its structure only; `UnsupportedModel` if nothing can be computed together."""

    recordable = True

    def __init__(self, patcher: ModelPatcher) -> None:
        network = patcher.model.diffusion_model
        groups = _groups_of(network).groups
        if not groups:
            remedy = f"Remove the node for this model. It serves {names(lambda family: family.attention)}."
            raise nothing_to_fuse(describe_model(patcher), network, (), remedy)
        notes = ("steps aside while dynamic VRAM streams the weights",) if patcher.is_dynamic() else ()
        super().__init__(QKVFusion(groups, notes))
        self._used: weakref.WeakSet[Module] = weakref.WeakSet()

    def install(self, call: ModelCall, activity: Activity) -> None:
        network, device = _unwrapped(call.model.diffusion_model), call.sigmas.device
        self._used.add(network)
        found = _groups_of(network)
        shadows = call.cleanup.enter_context(Shadows())
        shadows.on_undo(found.reset)
        compiled = find(call.techniques, COMPILATION)
        policy = None if compiled is None else compiled.policy
        by_blocks = isinstance(policy, CompilePolicy) and policy.how.scope == "repeated_blocks"
        for group, reason in zip(found.groups, found.prepare(device), strict=True):
            if reason is None:
                group.activity = activity
                if by_blocks:  # which share compiled code only if each of them begins with the same counts
                    group.activity = Activity()
                    call.cleanup.callback(activity.add, group.activity)
                group.put_in(shadows)
            else:
                activity.fall_back(reason)

    def began(self) -> None:
        super().began()
        self._forget()  # what was found in a call outside of a run

    def ended(self) -> None:
        """Let go of the weights between runs, so that unloading the model frees its memory."""
        super().ended()
        self._forget()

    def _forget(self) -> None:
        for network in self._used:
            _groups_of(network).forget()

    def unloaded(self, model: BaseModel, successor: Stack | None) -> None:
        """Separate the weights: the model leaves its device, or goes to a clone that may not carry this technique."""
        found = _found.get(_unwrapped(model.diffusion_model))
        for group in () if found is None else found.groups:
            for layer in group.layers:
                for parameter in layer._parameters.values():
                    if parameter is not None:
                        separate_rows(_parts(parameter))


def _unwrapped(network: Module) -> Module:
    """Return the network itself: ComfyUI's own compile node puts a wrapper in its place."""
    return getattr(network, "_orig_mod", network)


class _Groups:
    """All projections of one network that can be computed together.

    Asking each group in each call takes longer than the launches that it saves, so the groups are only asked where
    something is not as it was in the last call that computed all of them.
    """

    def __init__(self, groups: Iterable[FusedProjections]) -> None:
        self.groups = tuple(groups)
        self._layers = [(layer.__dict__, layer._parameters) for group in self.groups for layer in group.layers]
        self._attentions = [(group.attention.__dict__.keys(), group.attributes) for group in self.groups]
        self._no_reasons = (None,) * len(self.groups)
        self._ready: tuple[torch.device, list[tuple[object, ...]]] | None = None

    def prepare(self, device: torch.device) -> Sequence[str | None]:
        """Join the weights of every group for a call on ``device``; return for each why that cannot be, or None."""
        if self._are_as_before(device):
            return self._no_reasons
        reasons = [_passing_obstacle(group, device) or group.prepare(_lasting_obstacle, _join) for group in self.groups]
        self._ready = None if any(reasons) else (device, self._state())
        return reasons

    def reset(self) -> None:
        """Forget the tensors of a call, also of one that was broken off in the middle."""
        for group in self.groups:
            if group.source is not None or group.plan is not None:
                group.reset()

    def forget(self) -> None:
        """Let go of the weights, so that a model that is unloaded frees its memory."""
        self._ready = None
        for group in self.groups:
            group.forget()

    def _are_as_before(self, device: torch.device) -> bool:
        if self._ready is None or self._ready[0] != device:
            return False
        for state, _ in self._layers:  # see _passing_obstacle, which tells one from the other
            if "forward" in state or "_v" in state or state["_forward_pre_hooks"] or state["_forward_hooks"]:
                return False
            if state.get("weight_function") or state.get("bias_function"):
                return False
        free = all([taken.isdisjoint(attributes) for taken, attributes in self._attentions])
        return free and self._ready[1] == self._state()

    def _state(self) -> list[tuple[object, ...]]:
        cast, always = _LOADED
        return [
            (state.get(cast), state.get(always), weight.data_ptr() if type(weight) is Parameter else place_of(weight))
            for state, parameters in self._layers
            for weight in (parameters["weight"],)
        ]


def _groups_of(network: Module) -> _Groups:
    """Return all projections of a network that can be computed together; the same object as long as it lives."""
    network = _unwrapped(network)
    if network not in _found:
        known = ((module, found) for module in network.modules() if (found := find_layer(module)) is not None)
        _found[network] = _Groups(group for module, found in known for group in groups_in(module, found, _LOADED))
    return _found[network]


def _passing_obstacle(group: FusedProjections, device: torch.device) -> str | None:
    """Return why the weights of a group cannot be used directly in the coming call, or None.

    Straight from the dictionaries: the ``__getattr__`` of torch's modules is slow.
    """
    taken = group.attention.__dict__
    for name, layer in zip(group.attributes, group.layers, strict=True):
        state = layer.__dict__
        if name in taken or "forward" in state or state["_forward_pre_hooks"] or state["_forward_hooks"]:
            return OTHER_FORWARD
        if "_v" in state:
            return STREAMED
        if state.get("weight_function") or state.get("bias_function"):
            return PATCHED_IN_PASSING
    # All of a group are on one device: else they are never joined.
    weight = group.layers[0]._parameters["weight"]
    return ELSEWHERE if weight is None or weight.device != device else None


def _lasting_obstacle(layers: Sequence[Module]) -> str | None:
    first = layers[0]
    if any(type(layer) is not type(first) for layer in layers) or any(
        getattr(layer, name, None) != getattr(first, name, None) for layer in layers for name in _SETTINGS
    ):
        return UNEQUAL
    if any(getattr(layer, name, None) is not None for layer in layers for name in _OF_ITS_OWN):
        return "its projections scale their input each in its own way"
    return refuse_layers(layers, _refuse_weights)


def _is_int8(weight: Any) -> bool:
    return getattr(weight, "_layout_cls", None) == "TensorWiseINT8Layout"


def _parts(weight: Any) -> Iterator[Tensor]:
    """Yield the tensors that a weight consists of: rows of ``int8_tensorwise`` weights have scales of their own."""
    yield from (weight._qdata, weight._params.scale) if _is_int8(weight) else (weight,)


def _refuse_weights(weights: Sequence[Any]) -> str | None:
    if len({id(weight) for weight in weights}) < len(weights):
        return "two of its projections are one and the same"
    kinds = {type(weight) for weight in weights}
    if kinds <= set(PLAIN):
        return refuse_rows(weights)
    if not all(_is_int8(weight) for weight in weights):
        listed = ", ".join(sorted(kind.__name__ for kind in kinds))
        return UNEQUAL if len(kinds) > 1 else f"weights of the class {listed} cannot be joined"
    first = weights[0]._params
    for weight in weights:
        params = weight._params
        same = ("orig_dtype", "is_weight", "convrot", "convrot_groupsize", "transposed")
        if any(getattr(params, name, None) != getattr(first, name, None) for name in same):
            return UNEQUAL
        if params.scale.ndim != 2:
            return "its weights have one scale for the whole matrix instead of one for each row"
    return refuse_rows([weight._qdata for weight in weights]) or refuse_rows([w._params.scale for w in weights])


def _join(weights: Sequence[Any]) -> Any:
    """Return one weight of all rows that shares its memory with ``weights``: see ``join_rows``."""
    joined = [join_rows(parts) for parts in zip(*map(_parts, weights), strict=True)]
    if not _is_int8(weights[0]):
        return joined[0]
    qdata, scale = joined
    params = dataclasses.replace(weights[0]._params, scale=scale, orig_shape=tuple(qdata.shape))
    return type(weights[0])(qdata, weights[0]._layout_cls, params)
