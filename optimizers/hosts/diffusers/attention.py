"""Run a diffusers model's attention with a chosen backend: diffusers' own code for it where there is one, else ours."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....core.calls import Args, Function, Kwargs
from ....core.errors import UnsupportedModel, require_choice
from ....core.technique import COMPILATION, TOKEN_MERGING
from ...attention.backend import Inputs
from ...attention.policy import AUTO, HOST_DOES_IT, AttentionPolicy, limit_of
from ...attention.registry import names
from .components import CONTROLNET, DENOISER, VAE, device_of
from .host import Host, PipelineTechnique
from .intercept import intercepted
from .patches import Patches, current
from .protocols import AttentionModule

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
_PLAIN, _SDPA, _XFORMERS = "vanilla", "sdpa", "xformers"
_FAMILIES: tuple[dict[str, str], ...] = (
    {_PLAIN: "AttnProcessor", _SDPA: "AttnProcessor2_0", _XFORMERS: "XFormersAttnProcessor"},
    {_PLAIN: "AttnAddedKVProcessor", _SDPA: "AttnAddedKVProcessor2_0", _XFORMERS: "XFormersAttnAddedKVProcessor"},
    {_SDPA: "JointAttnProcessor2_0", _XFORMERS: "XFormersJointAttnProcessor"},
)

_NO_SDPA = "its processor does not use scaled_dot_product_attention"


@dataclass(frozen=True)
class Attention:
    """Which attention backend to use: the setting of the node Set Attention Processor.

    ``backend``: ``auto``, or a name of ``optimizers/attention``, e.g. ``sdpa``, ``xformers``; else `InvalidSetting`.
    """

    backend: str = AUTO

    def __post_init__(self) -> None:
        require_choice("backend", self.backend, (AUTO, *names()))


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
        self._unguarded: dict[str, int] = {}
        self._left = ""

    def attach(self, host: Host, patches: Patches) -> None:
        part = host.component.part
        layers = [(name, layer) for name, layer in part.named_modules() if _is_attention(layer)]
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
            chosen = _chosen_already(layer) if self.settings.backend == AUTO else ""
            if chosen:
                left[chosen] = left.get(chosen, 0) + 1
                continue
            theirs = Patches()
            ours = reduced or head_size(layer) in policy.failing
            whose = None if ours else _use_theirs(layer, backend, theirs)
            patches.on_undo(theirs.undo)
            if whose is None:
                _use_sdpa(layer, patches)
                patches.shadow(layer, "forward", self._routed(host, name, current(layer, "forward")))
            elif not compiled:
                patches.shadow(layer, "forward", self._guarded(whose, layer, current(layer, "forward"), theirs))
            else:  # compiled code catches no errors, and would be compiled anew for the function of each layer
                self._unguarded[whose] = self._unguarded.get(whose, 0) + 1
            counts[whose or "ours"] = counts.get(whose or "ours", 0) + 1
        self._left = ", ".join(
            f"{whose} on {count} layer{'' if count == 1 else 's'} was chosen before, which auto leaves in place"
            for whose, count in left.items()
        )
        used = ", ".join(f"{whose} on {count} layers" for whose, count in counts.items())
        policy.notes = tuple(filter(None, (used, self._left)))

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        if self._left:
            self.activity.skip(HOST_DOES_IT, self._left)
        for whose, count in self._unguarded.items():
            self.activity.used[whose] = count

    def _routed(self, host: Host, name: str, forward: Function) -> Function:
        def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            mask, scale, enable_gqa = options.get("attn_mask"), options.get("scale"), options.get("enable_gqa", False)
            inputs = Inputs(q, k, v, mask, scale, enable_gqa)
            plain = not options.get("is_causal") and not options.get("dropout_p")
            refusal = None if plain else "causal attention or dropout (takes neither)"
            output = self.policy.attend(self.activity, name, inputs, refusal, evaluation=host.evaluation)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options) if output is None else output

        return intercepted(forward, attend, lambda: self.activity.fall_back(_NO_SDPA))

    def _guarded(self, whose: str, layer: AttentionModule, forward: Function, theirs: Patches) -> Function:
        """Return ``forward`` of a layer that runs as before once diffusers' code for the backend has failed."""
        kind, broken = (head_size(layer),), self.policy.broken

        @functools.wraps(forward)
        def guarded(*args: object, **options: object) -> object:
            if kind not in broken:
                try:
                    result = forward(*args, **options)
                except Exception as error:
                    reason = limit_of(error)
                else:
                    self.activity.use(whose)
                    return result
                theirs.undo()
                try:
                    result = forward(*args, **options)
                except BaseException:  # it is not for the backend that it fails
                    _use_theirs(layer, self.policy.backend.name, theirs)
                    raise
                broken[kind] = reason
            else:
                theirs.undo()
                result = forward(*args, **options)
            self.activity.fall_back(broken[kind])
            return result

        return guarded


def head_size(layer: AttentionModule) -> int:
    """Return the channels of one head of an attention layer."""
    size = getattr(layer, "head_dim", None)
    return int(size) if size is not None else int(layer.inner_dim) // int(layer.heads)


def _is_attention(part: Any) -> bool:
    return hasattr(part, "get_processor") and hasattr(part, "heads") and hasattr(part, "to_q")


def _chosen_already(layer: AttentionModule) -> str:
    """Return which attention of diffusers the program has chosen for a layer; "" if it has chosen none."""
    processor = layer.get_processor()
    if not hasattr(processor, "_attention_backend"):
        name = type(processor).__name__
        return f"diffusers' {name}" if any(name == family[_XFORMERS] for family in _FAMILIES) else ""
    from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

    backend = processor._attention_backend or _AttentionBackendRegistry.get_active_backend()[0]
    name = AttentionBackendName(backend).value
    return "" if name == DISPATCHER_NAMES["sdpa"] else f"diffusers' dispatcher ({name})"


def _use_theirs(layer: AttentionModule, name: str, patches: Patches) -> str | None:
    """Let diffusers' own code for backend ``name`` run ``layer``; return what it is called, None if there is none."""
    processor = layer.get_processor()
    if hasattr(processor, "_attention_backend"):
        theirs = DISPATCHER_NAMES.get(name)
        if theirs is None:
            return None
        from diffusers.models.attention_dispatch import AttentionBackendName

        # Not set_attention_backend(): that changes the backend of every other model in the process as well.
        previous = processor._attention_backend
        processor._attention_backend = AttentionBackendName(theirs)
        patches.on_undo(lambda: setattr(processor, "_attention_backend", previous))
        return f"diffusers' dispatcher ({theirs})"
    return _swap_processor(layer, name, patches)


def _use_sdpa(layer: AttentionModule, patches: Patches) -> None:
    """Let ``layer`` use torch's SDPA, where only its processor decides otherwise."""
    if not hasattr(layer.get_processor(), "_attention_backend"):
        _swap_processor(layer, _SDPA, patches)


def _swap_processor(layer: AttentionModule, name: str, patches: Patches) -> str | None:
    from diffusers.models import attention_processor

    found = type(layer.get_processor()).__name__
    for family in _FAMILIES:
        if found in family.values() and name in family:
            if found != family[name]:
                chosen, previous = getattr(attention_processor, family[name])(), layer.get_processor()
                layer.set_processor(chosen)
                patches.on_undo(functools.partial(_put_back, layer, chosen, previous))
            return f"diffusers' {family[name]}"
    return None


def _put_back(layer: AttentionModule, ours: object, previous: object) -> None:
    if layer.get_processor() is ours:  # else somebody has set another one since, which is theirs to undo
        layer.set_processor(previous)
