"""What is behind ComfyUI's warning of a memory leak: a model that somebody holds, or one that ComfyUI has lost."""

from __future__ import annotations

import gc
from typing import Any


def leaks() -> dict[str, int]:
    """Return how many loaded models were leaked and how many ComfyUI itself has lost, and take the lost off its list.

    ComfyUI notes the clone that is loaded and that clone's parent, both weakly. An error's traceback holds itself and
    all clones of the failed run, so one garbage collection takes clone and parent. Then the note is empty, though the
    loader's output holds the model, as it should. That is *lost*: the parent was noted and is gone, and a MODEL with
    the network lives. All other empty notes are *leaked*: the network is alive, and no MODEL that has it is known.
    """
    import comfy.model_management as management
    from comfy.model_patcher import ModelPatcher

    dead = [loaded for loaded in management.current_loaded_models if loaded.is_dead()]
    patchers = [thing for thing in gc.get_objects() if isinstance(thing, ModelPatcher)] if dead else []
    lost = [loaded for loaded in dead if _has_lost_parent(loaded) and _is_held(loaded, patchers)]
    for loaded in lost:
        # by position: ComfyUI's comparison takes all empty notes for the same
        index = next(i for i, other in enumerate(management.current_loaded_models) if other is loaded)
        management.current_loaded_models.pop(index).model_finalizer.detach()
    return {"lost_by_comfyui": len(lost), "leaked": len(dead) - len(lost)}


def _has_lost_parent(loaded: Any) -> bool:
    parent = getattr(loaded, "_parent_model", None)
    return parent is not None and parent() is None


def _is_held(loaded: Any, patchers: list[Any]) -> bool:
    return any(patcher.model is loaded.real_model() for patcher in patchers)
