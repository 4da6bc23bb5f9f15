"""What of ComfyUI keeps a live network from running compiled, and how to do without dynamic VRAM."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary, ref

import torch

from .....core.errors import UnsupportedModel
from ..structure.protocols import ModelPatcher, NetworkPatcher, Patcher
from ..targets.model import first_of

FOREIGN_COMPILE = "torch.compile"
"""Under this key ComfyUI's TorchCompileModel and other packs put their own compile wrapper on a model."""

_NOT_LOADED = "the network is not loaded completely; compiled code needs all of its weights on the device"
_DYNAMIC = "the network runs with dynamic VRAM, which cannot be compiled"
_REPLACED = "another node has replaced this method of the network itself"

_second_copies: WeakKeyDictionary[object, ref[object]] = WeakKeyDictionary()
"""The patcher without dynamic VRAM that was loaded for a network, for as long as somebody uses it."""


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


def without_dynamic_vram(patcher: Patcher, what: str) -> Patcher:
    """Return a clone without dynamic VRAM, on a second copy of the weights; `UnsupportedModel` if it cannot be loaded.

    Loaded from the file the first time; clones made while an earlier one is in use share its copy. ``what`` is its name
    for the error.
    """
    kept = _second_copies.get(patcher.model)
    earlier: Patcher | None = kept() if kept is not None else None  # type: ignore[assignment]
    try:
        if earlier is not None:
            return patcher.clone(disable_dynamic=True, model_override=earlier.get_clone_model_override())
        clone = patcher.clone(disable_dynamic=True)
    except (RuntimeError, TypeError) as error:
        raise UnsupportedModel(
            f"{what} uses ComfyUI's dynamic VRAM, which cannot be compiled, and its loader cannot load it without "
            f"({error}).",
            "Start ComfyUI with --disable-dynamic-vram, or load it with one of ComfyUI's own loaders.",
        ) from error
    _second_copies[patcher.model] = ref(first_of(clone))  # which every clone of it keeps
    return clone
