"""Attach techniques to a clone of a MODEL, and take them off again."""

from __future__ import annotations

from typing import Any

from . import guiders
from .stack import KEY, Stack, Technique, stack_of
from .weight_swap import rebase


def clone_with(patcher: Any, stack: Stack) -> Any:
    """Return a clone of a MODEL that carries ``stack`` and nothing else of ours; ``patcher`` stays as it is."""
    from comfy.patcher_extension import CallbacksMP, WrappersMP

    clone = rebase(patcher, stack).clone()
    wrappers = {
        WrappersMP.OUTER_SAMPLE: guiders.outer_sample,
        WrappersMP.CALC_COND_BATCH: guiders.calc_cond_batch,
        WrappersMP.APPLY_MODEL: stack.apply_model,
    }
    callbacks = {CallbacksMP.ON_PRE_RUN: stack.begin, CallbacksMP.ON_CLEANUP: stack.finish}
    clone.remove_attachments(KEY)
    for event in wrappers:
        clone.remove_wrappers_with_key(event, KEY)
    for event in callbacks:
        clone.remove_callbacks_with_key(event, KEY)
    if stack.techniques:
        clone.set_attachments(KEY, stack)
        for event, wrapper in wrappers.items():
            clone.add_wrapper_with_key(event, KEY, wrapper)
        for event, callback in callbacks.items():
            clone.add_callback_with_key(event, KEY, callback)
    return clone


def attach(patcher: Any, technique: Technique) -> Any:
    """Return a clone of a MODEL with ``technique`` added; it replaces one of the same kind."""
    return clone_with(patcher, stack_of(patcher).with_technique(technique))


def detach_all(patcher: Any) -> tuple[Any, tuple[Technique, ...]]:
    """Return a clone of a MODEL without anything of ours, and what was taken off."""
    return clone_with(patcher, Stack()), stack_of(patcher).techniques
