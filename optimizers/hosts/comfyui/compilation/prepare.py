"""Get a MODEL that torch.compile can work with, or say why there is none."""

from __future__ import annotations

import hashlib
from typing import Any
from weakref import WeakKeyDictionary, ref

from .....core.errors import UnsupportedModel
from ..model import describe_model, require_model

COMPILE_KEY = "torch.compile"
"""Under this key ComfyUI's TorchCompileModel and other packs put their own compile wrapper on a model."""

SECOND_COPY = (
    "a second copy of its weights, without dynamic VRAM, which cannot be compiled (to avoid it, start ComfyUI with "
    "--disable-dynamic-vram)"
)
"""Said of everything that :func:`without_dynamic_vram` has loaded."""

_second_copies: WeakKeyDictionary[Any, ref[Any]] = WeakKeyDictionary()
"""The patcher without dynamic VRAM that was loaded for a network, for as long as somebody uses it."""


def compilable(patcher: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a clone of a MODEL that can be compiled, and in sentences what was done for that.

    Raises:
        UnsupportedModel: if the model's memory manager cannot be switched to one that a compiled model works with.
    """
    require_model(patcher)
    notes = []
    if uses_dynamic_vram(patcher):
        clone = without_dynamic_vram(patcher, describe_model(patcher))
        notes.append(SECOND_COPY)
    else:
        clone = patcher.clone()
    if _remove_foreign(clone):
        notes.append("took ComfyUI's TorchCompileModel (or another pack's) off this model")
    return clone, tuple(notes)


def uses_dynamic_vram(patcher: Any) -> bool:
    """Return whether ComfyUI moves this patcher's weights in and out inside of every layer.

    It does so in Python that torch cannot compile.
    """
    return bool(getattr(patcher, "is_dynamic", bool)())


def without_dynamic_vram(patcher: Any, what: str) -> Any:
    """Return a clone of a patcher that has dynamic VRAM, on a second copy of the weights, without it.

    Loaded from the file the first time; clones made while an earlier one is in use share its copy.

    Args:
        patcher: the one with dynamic VRAM.
        what: what a person calls it, for the error.

    Raises:
        UnsupportedModel: if its loader cannot load it again.
    """
    kept = _second_copies.get(patcher.model)
    earlier = kept() if kept is not None else None
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
    _second_copies[patcher.model] = ref(clone)
    return clone


def is_replaced(module: Any, method: str) -> bool:
    """Return whether somebody has put something else in the place of a module's method."""
    own = module.__dict__.get(method)
    # ComfyUI leaves the module's own bound method behind when it takes a patch off.
    return own is not None and getattr(own, "__func__", None) is not getattr(type(module), method)


def foreign_compile(transformer_options: dict[str, Any]) -> bool:
    """Return whether another node's compile wrapper takes part in a model call."""
    from comfy.patcher_extension import WrappersMP

    wrappers = transformer_options.get("wrappers", {}).get(WrappersMP.APPLY_MODEL, {})
    return bool(wrappers.get(COMPILE_KEY))


def structure(network: Any) -> dict[str, str]:
    """Return what identifies a network's structure: its class, and its weights' names, sizes and dtypes."""
    lines = [f"{name} {tuple(weight.shape)} {weight.dtype}" for name, weight in network.named_parameters()]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return {"network": f"{type(network).__module__}.{type(network).__qualname__}", "weights": digest[:16]}


def _remove_foreign(patcher: Any) -> bool:
    from comfy.patcher_extension import WrappersMP

    found = bool(patcher.get_wrappers(WrappersMP.APPLY_MODEL, COMPILE_KEY))
    patcher.remove_wrappers_with_key(WrappersMP.APPLY_MODEL, COMPILE_KEY)
    patcher.model_options.pop("torch_compile_kwargs", None)
    return found
