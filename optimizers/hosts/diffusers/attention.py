"""Run a diffusers model's attention with a chosen backend: diffusers' own code for it where there is one, else ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ....core.activity import Activity, Summary
from ....core.errors import UnsupportedModel, require_choice
from ....core.order import ATTENTION, TOKEN_MERGING
from ...attention import AttentionCall, AttentionFunction, choose, get, names, require
from .components import CONTROLNET, DENOISER, VAE, device_of
from .host import Host, Technique
from .intercept import AttentionIntercept
from .patches import Patches, current

AUTO = "auto"

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

    Attributes:
        backend: ``auto``, or a name of ``optimizers/attention``, e.g. ``sdpa``, ``xformers``, ``sub_quadratic``.

    Raises:
        InvalidSetting: if there is no such backend.
    """

    backend: str = AUTO

    def __post_init__(self) -> None:
        """Check the value."""
        require_choice("backend", self.backend, (AUTO, *names()))


class AttentionBackend(Technique):
    """Set Attention Processor on one component.

    Raises:
        BackendUnavailable: on attaching, if the backend cannot run on the component's device, dtype and head sizes.
        UnsupportedModel: on attaching, if the component has no attention that could be reached.
    """

    kind = ATTENTION
    title = "Set Attention Processor"
    roles = (DENOISER, CONTROLNET, VAE)

    def __init__(self, settings: Attention) -> None:
        super().__init__(settings)
        self.name = settings.backend
        self._why = ""
        self._counts: dict[str, int] = {}
        self._seen = 0

    def describe(self) -> str:
        """Return the backend and whose code runs it on how many layers."""
        whose = ", ".join(f"{by} on {count} layers" for by, count in self._counts.items())
        return f"{self.name}{f' ({self._why})' if self._why else ''}: {whose}"

    def attach(self, host: Host, patches: Patches) -> None:
        """Choose the code for each attention layer."""
        layers = [(name, part) for name, part in host.component.part.named_modules() if _is_attention(part)]
        if not layers:
            raise UnsupportedModel(
                f"Set Attention Processor: {host.component.class_name} has no attention of diffusers' own classes.",
                "Leave it out for this component, with components=...",
            )
        device, dtype = device_of(host.component.part), next(host.component.part.parameters()).dtype
        sizes = sorted({head_size(part) for _, part in layers})
        if self.settings.backend == AUTO:
            self.name, self._why = choose(device, dtype, sizes)
        functions = {size: require(self.name, device, dtype, size) for size in sizes}
        # What reduces keys inside of attention has to see them, which it does not in diffusers' own xformers code.
        reduced = host.find(TOKEN_MERGING) is not None
        for name, layer in layers:
            whose = None if reduced and self.name != "sdpa" else _use_theirs(layer, self.name, patches)
            if whose is None:
                _use_sdpa(layer, patches)
                patches.shadow(layer, "forward", self._routed(name, layer, functions[head_size(layer)]))
                whose = "ours"
            self._counts[whose] = self._counts.get(whose, 0) + 1

    def before(self, host: Host, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count the layers that diffusers' own code serves; it does not count itself."""
        self._seen = 0
        for whose, count in self._counts.items():
            if whose != "ours":
                self.activity.used[whose] = count

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``sub_quadratic in 640 attention calls; 0 fallbacks``."""
        count = activity.fallback_count
        if not activity.use_count:
            why = f"{self.name} not active: every call fell back"
            return Summary("inactive", why, details=activity.fallback_lines())
        text = f"{self.name} in {activity.use_count} attention calls; {count} fallbacks"
        return Summary("partly" if count else "active", text, details=activity.fallback_lines())

    def _routed(self, name: str, layer: Any, function: AttentionFunction) -> Callable[..., Any]:
        forward = current(layer, "forward")
        backend = get(self.name)

        def attend(
            q: torch.Tensor,
            k: torch.Tensor,
            v: torch.Tensor,
            attn_mask: torch.Tensor | None = None,
            dropout_p: float = 0.0,
            is_causal: bool = False,
            scale: float | None = None,
            enable_gqa: bool = False,
        ) -> torch.Tensor:
            self._seen += 1
            reason = backend.refusal(AttentionCall.of(q, k, v, attn_mask))
            if is_causal or dropout_p:
                reason = "causal attention or dropout (takes neither)"
            if reason is None:
                self.activity.use(name)
                return function(q, k, v, mask=attn_mask, scale=scale, enable_gqa=enable_gqa)
            self.activity.fall_back(reason)
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )

        mode = AttentionIntercept(attend)

        @functools.wraps(forward)
        def routed(*args: Any, **options: Any) -> Any:
            seen = self._seen
            with mode:
                result = forward(*args, **options)
            if self._seen == seen:
                self.activity.fall_back(_NO_SDPA)
            return result

        return routed


def head_size(layer: Any) -> int:
    """Return the channels of one head of an attention layer."""
    size = getattr(layer, "head_dim", None)
    return int(size) if size is not None else int(layer.inner_dim) // int(layer.heads)


def _is_attention(part: Any) -> bool:
    return hasattr(part, "get_processor") and hasattr(part, "heads") and hasattr(part, "to_q")


def _use_theirs(layer: Any, name: str, patches: Patches) -> str | None:
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


def _use_sdpa(layer: Any, patches: Patches) -> None:
    """Let ``layer`` use torch's SDPA, where only its processor decides otherwise."""
    if not hasattr(layer.get_processor(), "_attention_backend"):
        _swap_processor(layer, _SDPA, patches)


def _swap_processor(layer: Any, name: str, patches: Patches) -> str | None:
    from diffusers.models import attention_processor

    found = type(layer.get_processor()).__name__
    for family in _FAMILIES:
        if found in family.values() and name in family:
            if found != family[name]:
                _set_processor(layer, getattr(attention_processor, family[name])(), patches)
            return f"diffusers' {family[name]}"
    return None


def _set_processor(layer: Any, chosen: Any, patches: Patches) -> None:
    previous = layer.get_processor()
    layer.set_processor(chosen)
    patches.on_undo(lambda: _put_back(layer, chosen, previous))


def _put_back(layer: Any, ours: Any, previous: Any) -> None:
    if layer.get_processor() is ours:  # else somebody has set another one since, which is theirs to undo
        layer.set_processor(previous)
