"""Fused projections in diffusers' attention layers, below their processors.

diffusers' own ``fuse_qkv_projections`` replaces processors, keeps the weights twice, leaves layers behind when it is
undone, and gives wrong pictures with a LoRA. Here the linear layers themselves work together, so all of these stay
right.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import Linear, Module

from ..core.not_copied import Args, Function, Kwargs
from ..core.technique import INT8
from ..qkv_fusion import SLOWER, FusedProjections, QKVFusion, groups_in, nothing_to_fuse, why_not_plain
from .components import CONTROLNET, DENOISER, VAE
from .host import Host
from .patches import Patches
from .pipeline_technique import PipelineTechnique

GRADIENTS = "gradients of its weights are asked for"

PROJECTIONS = (("to_q", "to_k", "to_v"), ("add_q_proj", "add_k_proj", "add_v_proj"))


@dataclass(frozen=True)
class FuseQKV:
    """Compute query, key and value of each attention layer in one matrix product: the node Fuse QKV. No settings."""


class ComponentQKVFusion(PipelineTechnique):
    """Fuse QKV on one component.

    On attaching, raises `UnsupportedModel` if nothing can be fused; beside int8, which may have taken all layers, not.
    """

    kind, title = QKVFusion.kind, QKVFusion.title
    roles = (DENOISER, CONTROLNET, VAE)

    def attach(self, host: Host, patches: Patches) -> None:
        part = host.component.part
        self._groups = tuple(groups_in(part, lambda _: PROJECTIONS, ("encoder_hidden_states",), self))
        refused = [reason for group in self._groups if (reason := _why_alone(group) or group.why_apart())]
        self.policy = QKVFusion(len(self._groups) - len(refused))
        if len(refused) == len(self._groups) and host.find(INT8) is None:
            remedy = "Leave FuseQKV out for this component, with components=..."
            raise nothing_to_fuse(host.component.class_name, part, refused, remedy)
        for group in self._groups:
            for index, module in enumerate(group.modules):
                patches.wrap(module, "forward", partial(_instead, group, index))
            patches.on_undo(group.separate)

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        """Join weights that were moved, converted or loaded since the last call."""
        for group in self._groups:
            weights = [parameter for layer in group.layers for parameter in layer.parameters()]
            # Joined weights have no gradients.
            wanted = torch.is_grad_enabled() and any(one.requires_grad for one in weights)
            refusal = GRADIENTS if wanted else _why_alone(group)
            group.prepare(refusal or SLOWER.get(weights[0].device.type, ""))


def _why_alone(group: FusedProjections) -> str:
    return next(filter(None, map(_why_layer_alone, group.layers)), "")


def _why_layer_alone(layer: Module) -> str:
    weight = layer._parameters.get("weight")
    if weight is None:
        return "its weights are made anew in each call (pruning or another reparametrization)"
    if weight.device.type == "meta":
        return "its weights are not on a device (sequential offloading)"
    if hasattr(layer, "_diffusers_hook"):
        return "diffusers brings or casts its weights in each call (group offloading, layerwise casting)"
    return why_not_plain(layer, (Linear,))


def _instead(group: FusedProjections, index: int, forward: Function) -> Function:
    """Compute below torch's own linear layers: hooks and layers around them go on to be called."""
    group.below[index] = forward
    return group.functions[index]
