"""diffusers' own code for an attention backend, on one layer."""

from __future__ import annotations

from typing import Any

from .....core.activity import Activity
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


def use_sdpa(layer: Any, patches: Patches) -> None:
    """Let ``layer`` use torch's SDPA, where only its processor decides otherwise."""
    if not hasattr(layer.get_processor(), _BACKEND):
        _processor(layer, SDPA, patches)


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
