"""Fuse QKV on a MODEL: what has to be true of ComfyUI's layers."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch.nn import Linear, Module

from ..core.activity import Activity
from ..core.shadow import Shadows
from ..models.families import family_names, projections_of
from ..qkv_fusion import SLOWER, FusedProjections, QKVFusion, groups_in, nothing_to_fuse, why_not_plain
from .run.comfy_technique import ComfyTechnique, ModelCall
from .second_weights.clone import require_plain_weights
from .structure.model_facts import describe_model
from .structure.protocols import ModelPatcher

STREAMED = "dynamic VRAM brings in the weights of each layer one by one (--disable-dynamic-vram loads the whole model)"
PARTLY = "the model is only partly loaded, so that its weights are moved, or a LoRA is applied to them, at each use"


class _Network:
    """What can be computed together in a network, and where that counts.

    It belongs to the network, not to a technique, because compiled code is guarded on its functions: a node that runs
    again makes a new technique, and nothing may be compiled again for that.
    """

    def __init__(self, network: Module) -> None:
        self.activity = Activity()
        self.groups = tuple(groups_in(network, projections_of, ("context", "value"), self))


_known: WeakKeyDictionary[Module, _Network] = WeakKeyDictionary()


class ModelQKVFusion(ComfyTechnique[ModelCall]):
    """Fuse QKV on one MODEL, read for its structure only; `UnsupportedModel` if nothing can be computed together."""

    def __init__(self, patcher: ModelPatcher) -> None:
        network = patcher.model.diffusion_model
        groups = _of(network).groups
        if not groups:
            remedy = f"Remove the node for this model. It serves {family_names(lambda family: family.attention)}."
            raise nothing_to_fuse(describe_model(patcher), network, (), remedy)
        require_plain_weights("Fuse QKV", network, describe_model(patcher))
        super().__init__(QKVFusion(len(groups)))
        self._groups: tuple[FusedProjections, ...] = ()

    def install(self, call: ModelCall, activity: Activity) -> None:
        if slower := SLOWER.get(call.sigmas.device.type):
            activity.fall_back(slower)
            return
        found = _of(call.model.diffusion_model)
        found.activity, self._groups = activity, found.groups
        call.count(self.kind, found)
        shadows = call.cleanup.enter_context(Shadows())
        for group in self._groups:
            reasons = (_why_alone(layer, call.sigmas.device) for layer in group.layers)
            group.prepare(next(filter(None, reasons), ""))
            group.below[:] = [module.forward for module in group.modules]
            for module, function in zip(group.modules, group.functions, strict=True):
                shadows.put(module, "forward", function)

    def ended(self) -> None:
        """Separate the weights between runs: the model may be unloaded, or used without this technique."""
        super().ended()
        for group in self._groups:
            group.separate()
        self._groups = ()


def _why_alone(layer: Module, device: Any) -> str:
    """Return, quickly, why a layer must compute alone in the coming call on ``device``; "" if it need not."""
    from comfy.ops import disable_weight_init, manual_cast

    state, weight = layer.__dict__, layer._parameters.get("weight")
    if other := why_not_plain(layer, (Linear, disable_weight_init.Linear, manual_cast.Linear)):
        return other
    if "_v" in state:
        return STREAMED
    moved = state.get("weight_function") or state.get("bias_function") or weight is None or weight.device != device
    return PARTLY if moved else ""


def _of(network: Module) -> _Network:
    """Return what can be computed together in a network; the same object as long as it lives."""
    network = getattr(network, "_orig_mod", network)  # ComfyUI's own compile node puts a wrapper in its place
    return _known.get(network) or _known.setdefault(network, _Network(network))
