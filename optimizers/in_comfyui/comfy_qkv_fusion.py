"""Fuse QKV on a MODEL: what has to be true of ComfyUI's layers."""

from __future__ import annotations

import weakref
from functools import cache
from itertools import chain
from typing import Any

from torch.nn import Linear, Module

from ..core.activity import Activity
from ..core.shadow import Shadows
from ..models.families import family_names, find_layer
from ..qkv_fusion.projections import FusedProjections, why_not_plain
from ..qkv_fusion.qkv_policy import SLOWER, QKVFusion, groups_in, nothing_to_fuse
from .run.comfy_technique import ComfyTechnique, ModelCall
from .second_weights.clone import require_plain_weights
from .structure.model_facts import describe_model
from .structure.protocols import ModelPatcher

STREAMED = "dynamic VRAM brings in the weights of each layer one by one (--disable-dynamic-vram loads the whole model)"
PARTLY = "the model is only partly loaded, so that its weights are moved, or a LoRA is applied to them, at each use"

_found: weakref.WeakKeyDictionary[Module, tuple[FusedProjections, ...]] = weakref.WeakKeyDictionary()
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
        notes = ["not active while dynamic VRAM streams the weights"] if patcher.is_dynamic() else []
        if slower := SLOWER.get(patcher.load_device.type):
            notes.append(f"left alone: {slower}")
        super().__init__(QKVFusion(len(groups), notes))
        self._joined: tuple[FusedProjections, ...] = ()

    def install(self, call: ModelCall, activity: Activity) -> None:
        if slower := SLOWER.get(call.sigmas.device.type):
            activity.fall_back(slower)
            return
        alike = any(technique.blocks_share_code for technique in call.techniques)
        shadows = call.cleanup.enter_context(Shadows())
        self._joined = _groups_of(call.model.diffusion_model)
        for group in self._joined:
            group.activity = activity
            if alike:  # each block begins with the same counts
                group.activity = Activity()
                call.cleanup.callback(activity.add, group.activity)
            reasons = (_why_alone(layer, call.sigmas.device) for layer in group.layers)
            group.prepare(next(filter(None, reasons), ""))
            group.alone[:] = [layer.forward for layer in group.layers]
            group.inner = group.attention.forward
            group.reset()
            shadows.on_undo(group.reset)
            for layer, function in zip(group.layers, group.functions, strict=True):
                shadows.put(layer, "forward", function)
            if group.foresee is not None:
                shadows.put(group.attention, "forward", group.foresee)

    def ended(self) -> None:
        """Separate the weights between runs: the model may be unloaded, or used without this technique."""
        super().ended()
        for group in self._joined:
            group.separate()
        self._joined = ()


def _why_alone(layer: Module, device: Any) -> str:
    """Return, quickly, why a layer must compute alone in the coming call on ``device``; "" if it need not."""
    state, weight = layer.__dict__, layer._parameters.get("weight")
    if other := why_not_plain(layer, _plain()):
        return other
    if "_v" in state:
        return STREAMED
    moved = state.get("weight_function") or state.get("bias_function") or weight is None or weight.device != device
    return PARTLY if moved else ""


@cache
def _plain() -> tuple[type, ...]:
    """Return the classes of layers that multiply by their weight in the dtype of the tokens, and do nothing else."""
    from comfy.ops import disable_weight_init, manual_cast

    return Linear, disable_weight_init.Linear, manual_cast.Linear


def _groups_of(network: Module) -> tuple[FusedProjections, ...]:
    """Return all projections of a network that can be computed together; the same objects as long as it lives."""
    network = getattr(network, "_orig_mod", network)  # ComfyUI's own compile node puts a wrapper in its place
    if network not in _found:
        known = ((module, layer) for module in network.modules() if (layer := find_layer(module)) is not None)
        _found[network] = tuple(chain.from_iterable(groups_in(*each) for each in known))
    return _found[network]
