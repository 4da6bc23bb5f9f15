"""What of ComfyUI keeps a live network from running compiled, and how to do without dynamic VRAM."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..structure.protocols import ModelPatcher, NetworkPatcher

_NOT_LOADED = "the network is not loaded completely; compiled code needs all of its weights on the device"
_DYNAMIC = "the network runs with dynamic VRAM, which cannot be compiled"
_REPLACED = "another node has replaced this method of the network itself"


def refusal(
    patcher: ModelPatcher | NetworkPatcher | None, loaded: object, methods: Iterable[tuple[torch.nn.Module, str]]
) -> str | None:
    """Return why a live network cannot run compiled as it is now; None if it can.

    ``loaded`` is the module that ComfyUI loads: a BaseModel, or the network itself. ``methods``: modules, and the names
    of their methods that would run compiled.
    """
    # ComfyUI then moves weights in and out inside of every layer, in Python that torch cannot compile.
    if patcher is not None and patcher.is_dynamic():
        return _DYNAMIC
    if getattr(loaded, "model_lowvram", False):
        return _NOT_LOADED
    return _REPLACED if any(_is_replaced(module, method) for module, method in methods) else None


def _is_replaced(module: torch.nn.Module, method: str) -> bool:
    own = module.__dict__.get(method)
    # ComfyUI leaves the module's own bound method behind when it takes a patch off.
    return own is not None and getattr(own, "__func__", None) is not getattr(type(module), method)
