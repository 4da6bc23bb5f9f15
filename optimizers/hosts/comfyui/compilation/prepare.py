"""Get a MODEL that torch.compile can work with, or say why there is none."""

from __future__ import annotations

import hashlib
from typing import Any

from ....errors import UnsupportedModel
from ..unet import describe_model, require_model

COMPILE_KEY = "torch.compile"
"""Under this key ComfyUI's TorchCompileModel and other packs put their own compile wrapper on a model."""


def compilable(patcher: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a clone of a MODEL that can be compiled, and in sentences what was done for that.

    Raises:
        UnsupportedModel: if the model's memory manager cannot be switched to one that a compiled model works with.
    """
    require_model(patcher)
    notes = []
    is_dynamic = getattr(patcher, "is_dynamic", None)
    if is_dynamic is not None and is_dynamic():
        # Dynamic VRAM moves weights in and out inside of every layer, in Python that torch cannot compile.
        try:
            clone = patcher.clone(disable_dynamic=True)
        except (RuntimeError, TypeError) as error:
            raise UnsupportedModel(
                f"{describe_model(patcher)} uses ComfyUI's dynamic VRAM, which cannot be compiled, and its loader "
                f"cannot load it without ({error}).",
                "Start ComfyUI with --disable-dynamic-vram, or load the model with one of ComfyUI's own loaders.",
            ) from error
        notes.append(
            "loaded a second time, without dynamic VRAM, which cannot be compiled (to avoid the second copy, start "
            "ComfyUI with --disable-dynamic-vram)"
        )
    else:
        clone = patcher.clone()
    if _remove_foreign(clone):
        notes.append("took ComfyUI's TorchCompileModel (or another pack's) off this model")
    return clone, tuple(notes)


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
