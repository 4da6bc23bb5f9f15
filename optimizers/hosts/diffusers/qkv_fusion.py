"""Fused projections in diffusers' attention layers, below their processors.

diffusers' own ``fuse_qkv_projections`` replaces processors, keeps the weights twice, does nothing for ControlNets and
drops the part of a LoRA that is on the fused layers. Here the linear layers themselves work together (see
``optimizers/qkv_fusion``), so every processor is served, the weights are there once, and a LoRA layer of PEFT, which
calls the layer it wraps and adds its own part, stays right whenever it is loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ....core.activity import Activity, Summary
from ....core.errors import UnsupportedModel
from ....core.order import QKV_FUSION
from ...qkv_fusion import SEPARATE, FusedProjections, join_rows, refuse_rows
from .components import CONTROLNET, DENOISER, VAE
from .host import Host, Technique
from .patches import Patches, current
from .settings import FuseQKV

_QKV = ("to_q", "to_k", "to_v")
_ADDED = ("add_q_proj", "add_k_proj", "add_v_proj")
_NAMES = ("q, k, v", "k, v")
_OFFLOADED = "its weights are not on a device (sequential offloading)"


class Projections(FusedProjections):
    """Fused projections whose products somebody else can compute."""

    def compute_with(self, product: Callable[[torch.Tensor, int, int], torch.Tensor]) -> None:
        """Let ``product(tokens, first, last)`` compute layers ``first`` to ``last - 1`` from now on."""
        count = len(self.layers)
        self._alone = tuple(functools.partial(_call, product, first, first + 1) for first in range(count))
        for first, twin in enumerate(self._together):
            twin.__dict__["forward"] = functools.partial(_call, product, first, count)


def _call(product: Callable[[torch.Tensor, int, int], torch.Tensor], first: int, last: int, x: torch.Tensor) -> Any:
    return product(x, first, last)


@dataclass
class Group:
    """Projections of one attention layer that can be computed together.

    Attributes:
        fused: the shared computation.
        by_call: whether the attention decides at each call; else the input is always the same.
        joined: whether the weights lie together at present.
    """

    fused: Projections
    by_call: bool
    joined: bool = True

    def plan(self, first: int) -> None:
        """Say before a call which projection computes for those after it."""
        self.fused.plan = first if self.joined else SEPARATE


class ProjectionFusion(Technique):
    """Fuse QKV on one component.

    Raises:
        UnsupportedModel: on attaching, if nothing can be fused.
    """

    kind = QKV_FUSION
    title = "Fuse QKV"
    roles = (DENOISER, CONTROLNET, VAE)

    def __init__(self, settings: FuseQKV) -> None:
        super().__init__(settings)
        self.groups: dict[str, Group] = {}
        self._refused: dict[str, str] = {}

    def describe(self) -> str:
        """Return how many layers are fused, and why others are not."""
        reasons = list(self._refused.values())
        rest = "".join(f"; not {reasons.count(reason)}: {reason}" for reason in dict.fromkeys(reasons))
        return f"{len(self.groups)} groups of projections share one matrix product{rest}"

    def attach(self, host: Host, patches: Patches) -> None:
        """Join the weights and shadow the forward of the projections."""
        for name, layer in host.component.part.named_modules():
            for place, attention, projections in _groups(name, layer):
                reason = _refusal(projections)
                if reason is not None:
                    self._refused[place] = reason
                    continue
                self._fuse(place, attention, projections, patches)
        if not self.groups:
            why = "; ".join(dict.fromkeys(self._refused.values())) or "it has no separate query, key and value layers"
            raise UnsupportedModel(
                f"Fuse QKV: nothing can be fused in this {host.component.class_name}: {why}.",
                "Leave FuseQKV out for this component, with components=...",
            )

    def before(self, host: Host, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Join weights that were moved, converted or loaded since the last call."""
        for name, group in self.groups.items():
            if not group.fused.ready:
                reason = _weights_refusal(group.fused.layers)
                group.joined = reason is None
                if reason is None:
                    group.fused.build(join_rows)
                else:
                    group.fused.forget()
                    self.activity.fall_back(f"{name}: {reason}")
            if not group.by_call:
                group.plan(0)

    def begin(self) -> None:
        """Count anew, and forget a call that was broken off in the middle."""
        super().begin()
        for group in self.groups.values():
            group.fused.reset()

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``fused in 640 attention calls; 0 fallbacks``."""
        count = activity.fallback_count
        if not activity.use_count:
            return Summary("inactive", "not active: no fused layer was called", details=activity.fallback_lines())
        text = f"{activity.use_count} matrix products in the place of separate ones; {count} fallbacks"
        return Summary("partly" if count else "active", text, details=activity.fallback_lines())

    def _fuse(self, place: str, attention: Any, layers: tuple[torch.nn.Module, ...], patches: Patches) -> None:
        fused = Projections(layers, _NAMES[-(len(layers) - 1) :])
        fused.build(join_rows)
        fused.count = lambda names: self.activity.use(names)
        fused.fall_back = lambda reason: self.activity.fall_back(reason)
        group = self.groups[place] = Group(fused, attention is not None)
        for layer, function in zip(layers, fused.functions, strict=True):
            patches.shadow(layer, "forward", function)
        if attention is not None:
            patches.shadow(attention, "forward", _planned(group, current(attention, "forward")))
        patches.on_undo(lambda: _separate(fused))


def _planned(group: Group, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``forward`` of an attention that says first which of its projections have the same input."""

    @functools.wraps(forward)
    def planned(hidden_states: Any, encoder_hidden_states: Any = None, *args: Any, **options: Any) -> Any:
        group.plan(0 if encoder_hidden_states is None else 1)
        return forward(hidden_states, encoder_hidden_states, *args, **options)

    return planned


def _groups(name: str, layer: Any) -> Iterator[tuple[str, Any, tuple[torch.nn.Module, ...]]]:
    """Yield what can be computed together in ``layer``: place, attention that decides at each call, the layers.

    The attention is None where the input is always the same: of keys and values of the text, of joint attention.
    """
    if not all(hasattr(layer, part) for part in _QKV):
        return
    query, key, value = (_base(getattr(layer, part)) for part in _QKV)
    added = tuple(_base(getattr(layer, part, None)) for part in _ADDED)
    # In joint attention the encoder's tokens go through projections of their own, so `encoder_hidden_states` does not
    # make it a cross-attention.
    joint = added[1] is not None
    if all(isinstance(part, torch.nn.Linear) for part in (query, key, value)):
        if query.in_features != key.in_features:
            yield f"{name} k, v", None, (key, value)
        else:
            yield f"{name} q, k, v", None if joint else layer, (query, key, value)
    if joint:
        present = tuple(part for part in added if part is not None)
        yield f"{name} added", None, present


def _base(layer: Any) -> Any:
    """Return a projection without the LoRA around it."""
    return layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer


def _refusal(layers: tuple[torch.nn.Module, ...]) -> str | None:
    for layer in layers:
        if type(layer) is not torch.nn.Linear:
            return f"its projections are {type(layer).__name__}, not plain linear layers"
        if type(layer.weight) not in (torch.nn.Parameter, torch.Tensor):
            return f"its weights are {type(layer.weight).__name__}"
    if len({layer.bias is None for layer in layers}) > 1:
        return "only some of its projections have a bias"
    return _weights_refusal(layers)


def _weights_refusal(layers: tuple[torch.nn.Module, ...]) -> str | None:
    if any(layer.weight.device.type == "meta" for layer in layers):
        return _OFFLOADED
    return refuse_rows([layer._parameters["weight"] for layer in layers])  # type: ignore[misc]


def _separate(group: Projections) -> None:
    """Give each layer memory of its own again, with the values it has now."""
    group.forget()
    with torch.inference_mode(False), torch.no_grad():
        for layer in group.layers:
            for parameter in layer._parameters.values():
                if parameter is not None and parameter.device.type != "meta":
                    parameter.data = parameter.data.clone()
