"""Fused projections in diffusers' attention layers, below their processors.

diffusers' own ``fuse_qkv_projections`` replaces processors, keeps the weights twice, does nothing for ControlNets and
drops a LoRA's part on the fused layers. Here the linear layers themselves work together, so all of these stay right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module

from .....core.shared import Args, Function, Kwargs
from .....core.technique import INT8
from ....families import AttentionLayer, find_layer
from ....qkv_fusion.policy import QKVFusion, groups_in, nothing_to_fuse
from ....qkv_fusion.projections import KEYS_AND_VALUES, FusedProjections
from ..components import CONTROLNET, DENOISER, VAE
from ..host import Host
from ..patches import OFFLOADED, Patches, Wrap
from ..pipeline_technique import PipelineTechnique

_QKV = ("to_q", "to_k", "to_v")
GRADIENTS = "gradients of its weights are asked for"
_ADDED = ("add_q_proj", "add_k_proj", "add_v_proj")


@dataclass(frozen=True)
class FuseQKV:
    """Compute query, key and value of each attention layer in one matrix product: the node Fuse QKV. No settings."""


class ComponentQKVFusion(PipelineTechnique):
    """Fuse QKV on one component.

    On attaching, raises `UnsupportedModel` if nothing can be fused; beside int8, which may have taken all layers, not.
    """

    kind, title = QKVFusion.kind, QKVFusion.title
    roles = (DENOISER, CONTROLNET, VAE)

    def __init__(self, settings: FuseQKV) -> None:
        super().__init__(settings)
        self.groups: dict[str, LinearProjections] = {}
        self._wraps: dict[LinearProjections, list[Wrap]] = {}

    def attach(self, host: Host, patches: Patches) -> None:
        part, refused = host.component.part, []
        for path, layer in part.named_modules():
            known = find_layer(layer) or _by_names(layer)
            for number, group in enumerate(groups_in(layer, known, LinearProjections) if known is not None else ()):
                reason = group.prepare()
                if reason is not None:
                    refused.append(reason)
                    continue
                alone = "k, v" if group.names[0] == KEYS_AND_VALUES else "q, k, v"
                self.groups[f"{path} {'added' if number else alone}"] = group
                self._wraps[group] = [
                    patches.shadow(linear, "forward", function)
                    for linear, function in zip(group.layers, group.functions, strict=True)
                ]
                if group.foresee is not None:
                    self._wraps[group].append(patches.wrap(layer, "forward", group.foreseeing))
                patches.on_undo(group.separate)
        notes = tuple(f"not {refused.count(reason)}: {reason}" for reason in dict.fromkeys(refused))
        self.policy = QKVFusion(self.groups.values(), notes)
        if not self.groups and host.find(INT8) is None:
            remedy = "Leave FuseQKV out for this component, with components=..."
            raise nothing_to_fuse(host.component.class_name, part, refused, remedy)

    def begin_call(self) -> None:
        """Count anew, and forget a call that was broken off in the middle."""
        super().begin_call()
        for group in self.groups.values():
            group.reset()
            group.activity = self.activity

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        """Join weights that were moved, converted or loaded since the last call."""
        trained = torch.is_grad_enabled()
        for name, group in self.groups.items():
            weights = (parameter for layer in group.layers for parameter in layer.parameters())
            # Joined weights have no gradients.
            reason = GRADIENTS if trained and any(one.requires_grad for one in weights) else group.prepare()
            if reason is not None:
                self.activity.fall_back(f"{name}: {reason}")
            for wrap in self._wraps[group]:
                wrap.switch(reason is None)


class LinearProjections(FusedProjections):
    """Below torch's own linear layers: hooks and layers around them go on to be called."""

    def foreseeing(self, forward: Function) -> Function | None:
        """Return what stands around the ``forward`` of the attention layer: always the same object."""
        self.inner = forward
        return self.foresee

    def look(self, name: str, layer: Module, device: Any) -> tuple[object, ...]:
        weight, reason = layer._parameters.get("weight"), None
        now = layer.__dict__.get(OFFLOADED, layer.__dict__.get("forward"))
        if getattr(self.attention, "fused_projections", False):
            reason = "diffusers has fused them itself (fuse_qkv_projections)"
        elif type(layer) is not torch.nn.Linear:
            reason = f"its projections are {type(layer).__name__}, not plain linear layers"
        elif weight is None:
            reason = "its weights are made anew in each call (pruning or another reparametrization)"
        elif weight.device.type == "meta":
            reason = "its weights are not on a device (sequential offloading)"
        elif hasattr(layer, "_diffusers_hook"):
            reason = "diffusers brings or casts its weights in each call (group offloading, layerwise casting)"
        elif now is not None and getattr(now, "__func__", now) is not torch.nn.Linear.forward:
            reason = "other code computes its projections (their forward is not torch's)"
        return (reason,)


def _by_names(layer: Module) -> AttentionLayer | None:
    if not all(hasattr(layer, name) for name in _QKV):
        return None
    # Joint attention: the encoder's tokens go through projections of their own. Those of Wan are a picture's instead,
    # beside a text in the others; it has no queries of the encoder, and not the flag of diffusers' older class.
    added = getattr(layer, "add_k_proj", None) is not None
    joint = added and (getattr(layer, "add_q_proj", None) is not None or hasattr(layer, "only_cross_attention"))
    inputs = () if joint else ("hidden_states", "encoder_hidden_states")
    return AttentionLayer("", (_QKV, _ADDED) if added else (_QKV,), inputs)
