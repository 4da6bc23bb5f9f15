"""Run a diffusers model's attention with a chosen backend: diffusers' own code for it where there is one, else ours."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..attention.attention_policy import AUTO, HOST_DOES_IT, AttentionPolicy, limit_of
from ..attention.backend import Inputs
from ..attention.registry import BACKENDS
from ..core.errors import UnsupportedModel, require_choice
from ..core.not_copied import Args, Function, Kwargs
from ..core.technique import COMPILATION, TOKEN_MERGING
from .components import CONTROLNET, DENOISER, VAE, device_of
from .host import Host
from .intercept import intercepted
from .patches import NOTHING, Patches, Wrap, computed_by_others
from .pipeline_technique import PipelineTechnique

# diffusers' names in its dispatcher (models after 2024) for what our registry calls otherwise or the same.
DISPATCHER_NAMES = {
    "sdpa": "native",
    "sdpa_flash": "_native_flash",
    "sdpa_efficient": "_native_efficient",
    "sdpa_cudnn": "_native_cudnn",
    "sdpa_math": "_native_math",
    "xformers": "xformers",
    "sage": "sage",
}

# diffusers' processors of its older class Attention: (plain formula, torch's SDPA, xformers), by what the layer is.
PLAIN, SDPA, XFORMERS = "vanilla", "sdpa", "xformers"
_FAMILIES: tuple[dict[str, str], ...] = (
    {PLAIN: "AttnProcessor", SDPA: "AttnProcessor2_0", XFORMERS: "XFormersAttnProcessor"},
    {PLAIN: "AttnAddedKVProcessor", SDPA: "AttnAddedKVProcessor2_0", XFORMERS: "XFormersAttnAddedKVProcessor"},
    {SDPA: "JointAttnProcessor2_0", XFORMERS: "XFormersJointAttnProcessor"},
)

_AGAIN = "call optimize again to replace it"
_BACKEND = "_attention_backend"
"""Attribute of processors whose attention diffusers' dispatcher computes. ``set_attention_backend()`` would change the
backend of every other model in the process as well."""


class LayerAttention:
    """What a layer computes with, in each call: what it had when it was optimized, or diffusers' code in its place.

    What somebody has put there since is left alone: it is what runs, and it is not counted as the backend.

    Attributes:
        name: what diffusers' code is called.
        forward: what stands around the layer's ``forward``; None in compiled code, which catches no errors.
    """

    def __init__(
        self, layer: Any, patches: Patches, name: str = "", attribute: str = "", chosen: object = None
    ) -> None:
        self.name, self._layer, self._attribute, self._chosen = name, layer, attribute, chosen
        self._processor = layer.get_processor()
        self._backend = getattr(self._processor, _BACKEND, None)
        self.forward: Wrap | None = None
        self._on = True
        self._patches, self._wrap = patches, None
        if attribute:
            self._wrap = patches.wrap(layer if attribute == "processor" else self._processor, attribute, self._made)

    def left_to(self) -> str:
        """Leave the layer to those who compute it, or have set something since, and say who; "" for nobody.

        Asked between calls.
        """
        reason, now = computed_by_others(self._layer), self._layer.get_processor()
        backend = getattr(now, _BACKEND, None)
        if not reason and now not in (self._processor, self._chosen):
            reason = f"other code has set {type(now).__name__} since: {_AGAIN}"
        elif not reason and now is not self._chosen and backend not in (self._backend, self._chosen):
            reason = f"other code has set the backend {backend} since: {_AGAIN}"
        if bool(reason) is self._on:
            self._on = not reason
            for wrap in filter(None, (self.forward, self._wrap)):
                wrap.switch(self._on)
        return reason

    def switch(self, on: bool) -> None:
        """Say whether diffusers' code is there from now on: on all layers that share the processor."""
        mine = self._wrap
        for wrap in self._patches.wraps:
            if mine is not None and wrap.owner is mine.owner and wrap.name == mine.name:
                wrap.switch(on)

    def _made(self, now: object) -> object:
        before = self._processor if self._attribute == "processor" else self._backend
        return self._chosen if now is before or now is self._chosen else NOTHING


def chosen_already(layer: Any) -> str:
    """Return which attention of diffusers the program has chosen for a layer; "" if it has chosen none."""
    processor = layer.get_processor()
    if not hasattr(processor, _BACKEND):
        name = type(processor).__name__
        return f"diffusers' {name}" if any(name == family[XFORMERS] for family in _FAMILIES) else ""
    from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

    backend = getattr(processor, _BACKEND) or _AttentionBackendRegistry.get_active_backend()[0]
    name = AttentionBackendName(backend).value
    return "" if name == DISPATCHER_NAMES["sdpa"] else f"diffusers' dispatcher ({name})"


def use_theirs(layer: Any, name: str, patches: Patches) -> LayerAttention | None:
    """Let diffusers' own code for backend ``name`` run ``layer``; None if there is none."""
    if not hasattr(layer.get_processor(), _BACKEND):
        return _processor(layer, name, patches)
    theirs = DISPATCHER_NAMES.get(name)
    if theirs is None:
        return None
    from diffusers.models.attention_dispatch import AttentionBackendName

    return LayerAttention(layer, patches, f"diffusers' dispatcher ({theirs})", _BACKEND, AttentionBackendName(theirs))


def _processor(layer: Any, name: str, patches: Patches) -> LayerAttention | None:
    from diffusers.models import attention_processor

    processor = layer.get_processor()
    found = type(processor).__name__
    for family in _FAMILIES:
        if found in family.values() and name in family:
            kind = family[name]
            chosen = processor if found == kind else getattr(attention_processor, kind)()
            return LayerAttention(layer, patches, f"diffusers' {kind}", "processor", chosen)
    return None


_NO_SDPA = "its processor does not use scaled_dot_product_attention"


@dataclass(frozen=True)
class Attention:
    """Which attention backend to use: the setting of the node Set Attention Processor.

    ``backend``: ``auto``, or a name of ``optimizers/attention``, e.g. ``sdpa``, ``xformers``; else `InvalidSetting`.
    """

    backend: str = AUTO

    def __post_init__(self) -> None:
        require_choice("backend", self.backend, (AUTO, *BACKENDS))


class ComponentAttention(PipelineTechnique):
    """Set Attention Processor on one component.

    On attaching, raises `BackendUnavailable` if the backend cannot run on its device or takes none of its head sizes,
    `UnsupportedModel` if it has no attention that could be reached.
    """

    kind, title = AttentionPolicy.kind, AttentionPolicy.title
    roles = (DENOISER, CONTROLNET, VAE)
    policy: AttentionPolicy

    def attach(self, host: Host, patches: Patches) -> None:
        part = host.component.part
        self._choices: list[LayerAttention] = []
        needed = ("get_processor", "heads", "to_q")
        layers = [(name, one) for name, one in part.named_modules() if all(hasattr(one, each) for each in needed)]
        if not layers:
            raise UnsupportedModel(
                f"Set Attention Processor: {host.component.class_name} has no attention of diffusers' own classes.",
                "Leave it out for this component, with components=...",
            )
        sizes = sorted({head_size(layer) for _, layer in layers})
        dtype = getattr(part, "dtype", None) or next(part.parameters()).dtype
        self.policy = policy = AttentionPolicy(self.settings.backend, device_of(part), dtype, sizes)
        backend = policy.backend.name
        # What reduces keys inside of attention has to see them, which it does not in diffusers' own xformers code.
        reduced = host.find(TOKEN_MERGING) is not None and backend != "sdpa"
        compiled = host.find(COMPILATION) is not None
        # Approximate kernels are watched in our own function only.
        reduced = reduced or (bool(policy.approximation) and not compiled)
        counts, left = Counter[str](), Counter[str]()
        for name, layer in layers:
            chosen = chosen_already(layer) if self.settings.backend == AUTO else ""
            if chosen:
                left[chosen] += 1
                continue
            ours = reduced or head_size(layer) in policy.failing
            theirs = choice = None if ours else use_theirs(layer, backend, patches)
            if choice is None:
                # A processor with a dispatcher uses torch's SDPA already.
                asked = None if hasattr(layer.get_processor(), _BACKEND) else _processor(layer, SDPA, patches)
                choice = asked or LayerAttention(layer, patches)
                choice.forward = patches.wrap(layer, "forward", functools.partial(self._routed, host, name, layer))
            elif not compiled:  # which would be compiled anew for the function of each layer
                guarded = functools.partial(self._guarded, choice, head_size(layer))
                choice.forward = patches.wrap(layer, "forward", guarded)
            self._choices.append(choice)
            counts["ours" if theirs is None else theirs.name] += 1
        self._left = ", ".join(
            f"{whose} on {count} layer{'' if count == 1 else 's'} was chosen before, which auto leaves in place"
            for whose, count in left.items()
        )
        used = ", ".join(f"{whose} on {count} layers" for whose, count in counts.items())
        policy.notes = tuple(filter(None, (used, self._left)))

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        if self._left:
            self.activity.skip(HOST_DOES_IT, self._left)
        for choice in self._choices:
            if reason := choice.left_to():
                self.activity.fall_back(reason)
            elif choice.forward is None:
                self.activity.use(choice.name)

    def _routed(self, host: Host, name: str, layer: Module, forward: Function) -> Function:
        def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            mask, scale, enable_gqa = options.get("attn_mask"), options.get("scale"), options.get("enable_gqa", False)
            inputs = Inputs(q, k, v, mask, scale, enable_gqa)
            plain = not options.get("is_causal") and not options.get("dropout_p")
            refusal = None if plain else "causal attention or dropout (takes neither)"
            output = self.policy.attend(self.activity, name, inputs, refusal, evaluation=host.evaluation)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options) if output is None else output

        return intercepted(layer, forward, attend, lambda: self.activity.fall_back(_NO_SDPA))

    def _guarded(self, theirs: LayerAttention, size: int, forward: Function) -> Function:
        """Return ``forward`` of a layer that runs as before once diffusers' code for the backend has failed."""
        kind, broken = (size,), self.policy.broken

        @functools.wraps(forward)
        def guarded(*args: object, **options: object) -> object:
            if kind not in broken:
                try:
                    result = forward(*args, **options)
                except Exception as error:
                    reason = limit_of(error)
                else:
                    self.activity.use(theirs.name)
                    return result
                theirs.switch(False)
                try:
                    result = forward(*args, **options)
                except BaseException:  # it is not for the backend that it fails
                    theirs.switch(True)
                    raise
                broken[kind] = reason
            else:
                theirs.switch(False)
                result = forward(*args, **options)
            self.activity.fall_back(broken[kind])
            return result

        return guarded


def head_size(layer: Any) -> int:
    """Return the channels of one head of an attention layer."""
    size = getattr(layer, "head_dim", None)
    return int(size) if size is not None else int(layer.inner_dim) // int(layer.heads)
