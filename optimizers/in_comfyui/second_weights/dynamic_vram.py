"""How to do without ComfyUI's dynamic VRAM, which moves single weights as they are needed."""

from __future__ import annotations

from weakref import WeakKeyDictionary, ref

from ...core.errors import UnsupportedModel
from ..structure.model_facts import first_of
from ..structure.protocols import Patcher

_second_copies: WeakKeyDictionary[object, ref[object]] = WeakKeyDictionary()
"""The patcher without dynamic VRAM that was loaded for a network, for as long as somebody uses it."""


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
