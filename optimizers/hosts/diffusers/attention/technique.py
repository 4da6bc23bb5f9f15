"""Run a diffusers model's attention with a chosen backend: diffusers' own code for it where there is one, else ours."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .....core.activity import Activity
from .....core.errors import UnsupportedModel, require_choice
from .....core.shared import Args, Function, Kwargs
from .....core.technique import COMPILATION, TOKEN_MERGING
from ....attention.backend import Inputs
from ....attention.policy import AUTO, HOST_DOES_IT, AttentionPolicy, limit_of
from ....attention.registry import backend_names
from ..components import CONTROLNET, DENOISER, VAE, device_of
from ..host import Host, PipelineTechnique
from ..intercept import intercepted
from ..patches import NOTHING, Patches

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

_BACKEND = "_attention_backend"
"""Attribute of processors whose attention diffusers' dispatcher computes. ``set_attention_backend()`` would change the
backend of every other model in the process as well."""


class Theirs:
    """Puts diffusers' code for a backend in the place of what a layer had when it was optimized, in each call.

    What somebody has put there since is left alone: it is what runs, and it is not counted as the backend.

    Attributes:
        name: what the code is called.
    """

    def __init__(self, layer: Any, name: str, attribute: str, chosen: object, patches: Patches) -> None:
        self.name, self._layer, self._attribute = name, layer, attribute
        self._processor = layer.get_processor()
        owner: Any = layer if attribute == "processor" else self._processor
        self._values = (getattr(owner, attribute), chosen)
        self._wrap = patches.wrap(owner, attribute, self._made)

    @property
    def replacement(self) -> str:
        """What somebody has set since; "" for nothing."""
        now = self._layer.get_processor()
        value = now if self._attribute == "processor" else getattr(now, _BACKEND, None)
        if any(value is one for one in self._values) and (value is now or now is self._processor):
            return ""
        return type(now).__name__ if value is now or now is not self._processor else f"the backend {value}"

    def count(self, activity: Activity) -> None:
        """Count a call of the layer."""
        replacement = self.replacement
        if replacement:
            activity.fall_back(f"other code has set {replacement} since: call optimize again to replace it")
        else:
            activity.use(self.name)

    def switch(self, on: bool) -> None:
        """Say whether it is there from now on: on all layers that share the processor."""
        for wrap in [self._wrap] if self._wrap.place is None else self._wrap.place.wraps:
            wrap.switch(on)

    def _made(self, now: object) -> object:
        return self._values[1] if any(now is one for one in self._values) else NOTHING


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


def use_theirs(layer: Any, name: str, patches: Patches) -> Theirs | None:
    """Let diffusers' own code for backend ``name`` run ``layer``; None if there is none."""
    if not hasattr(layer.get_processor(), _BACKEND):
        return _processor(layer, name, patches)
    theirs = DISPATCHER_NAMES.get(name)
    if theirs is None:
        return None
    from diffusers.models.attention_dispatch import AttentionBackendName

    return Theirs(layer, f"diffusers' dispatcher ({theirs})", _BACKEND, AttentionBackendName(theirs), patches)


def _processor(layer: Any, name: str, patches: Patches) -> Theirs | None:
    from diffusers.models import attention_processor

    processor = layer.get_processor()
    found = type(processor).__name__
    for family in _FAMILIES:
        if found in family.values() and name in family:
            kind = family[name]
            chosen = processor if found == kind else getattr(attention_processor, kind)()
            return Theirs(layer, f"diffusers' {kind}", "processor", chosen, patches)
    return None


_NO_SDPA = "its processor does not use scaled_dot_product_attention"


@dataclass(frozen=True)
class Attention:
    """Which attention backend to use: the setting of the node Set Attention Processor.

    ``backend``: ``auto``, or a name of ``optimizers/attention``, e.g. ``sdpa``, ``xformers``; else `InvalidSetting`.
    """

    backend: str = AUTO

    def __post_init__(self) -> None:
        require_choice("backend", self.backend, (AUTO, *backend_names()))


class ComponentAttention(PipelineTechnique):
    """Set Attention Processor on one component.

    On attaching, raises `BackendUnavailable` if the backend cannot run on its device or takes none of its head sizes,
    `UnsupportedModel` if it has no attention that could be reached.
    """

    kind, title = AttentionPolicy.kind, AttentionPolicy.title
    roles = (DENOISER, CONTROLNET, VAE)
    policy: AttentionPolicy

    def __init__(self, settings: Attention) -> None:
        super().__init__(settings)
        self._unguarded: list[Theirs] = []
        self._left = ""

    def attach(self, host: Host, patches: Patches) -> None:
        part = host.component.part
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
        counts: dict[str, int] = {}
        left: dict[str, int] = {}
        for name, layer in layers:
            chosen = chosen_already(layer) if self.settings.backend == AUTO else ""
            if chosen:
                left[chosen] = left.get(chosen, 0) + 1
                continue
            ours = reduced or head_size(layer) in policy.failing
            theirs = None if ours else use_theirs(layer, backend, patches)
            if theirs is None:
                if not hasattr(layer.get_processor(), _BACKEND):  # else its processor uses torch's SDPA already
                    _processor(layer, SDPA, patches)
                patches.wrap(layer, "forward", functools.partial(self._routed, host, name))
            elif not compiled:
                patches.wrap(layer, "forward", functools.partial(self._guarded, theirs, head_size(layer)))
            else:  # compiled code catches no errors, and would be compiled anew for the function of each layer
                self._unguarded.append(theirs)
            whose = "ours" if theirs is None else theirs.name
            counts[whose] = counts.get(whose, 0) + 1
        self._left = ", ".join(
            f"{whose} on {count} layer{'' if count == 1 else 's'} was chosen before, which auto leaves in place"
            for whose, count in left.items()
        )
        used = ", ".join(f"{whose} on {count} layers" for whose, count in counts.items())
        policy.notes = tuple(filter(None, (used, self._left)))

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        if self._left:
            self.activity.skip(HOST_DOES_IT, self._left)
        for theirs in self._unguarded:
            theirs.count(self.activity)

    def _routed(self, host: Host, name: str, forward: Function) -> Function:
        def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            mask, scale, enable_gqa = options.get("attn_mask"), options.get("scale"), options.get("enable_gqa", False)
            inputs = Inputs(q, k, v, mask, scale, enable_gqa)
            plain = not options.get("is_causal") and not options.get("dropout_p")
            refusal = None if plain else "causal attention or dropout (takes neither)"
            output = self.policy.attend(self.activity, name, inputs, refusal, evaluation=host.evaluation)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options) if output is None else output

        return intercepted(forward, attend, lambda: self.activity.fall_back(_NO_SDPA))

    def _guarded(self, theirs: Theirs, size: int, forward: Function) -> Function:
        """Return ``forward`` of a layer that runs as before once diffusers' code for the backend has failed."""
        kind, broken = (size,), self.policy.broken

        @functools.wraps(forward)
        def guarded(*args: object, **options: object) -> object:
            if kind not in broken or theirs.replacement:
                try:
                    result = forward(*args, **options)
                except Exception as error:
                    if theirs.replacement:
                        raise
                    reason = limit_of(error)
                else:
                    theirs.count(self.activity)
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
