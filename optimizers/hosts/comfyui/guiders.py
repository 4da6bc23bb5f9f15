"""Give the second model of a two-model guider its own stack.

ComfyUI's *Dual Model CFG Guider* runs the negative pass on a second model, but with the options of the first, so all
patches of the first model apply to both passes and those of the second to none. For our techniques the pass is told
apart here, and gets what was attached to the model it runs on.
"""

from __future__ import annotations

from typing import Any

from .stack import ACTIVE_STACK, stack_of

_GUIDER = "paceline_guider"


def outer_sample(executor: Any, *args: Any, **kwargs: Any) -> Any:
    """Remember a guider that has a second model for the length of its run (ComfyUI's OUTER_SAMPLE wrapper)."""
    guider = executor.class_obj
    if getattr(guider, "uncond_model_patcher", None) is None:
        return executor(*args, **kwargs)
    options = guider.model_options
    transformer_options = {**options.get("transformer_options", {}), _GUIDER: guider}
    guider.model_options = {**options, "transformer_options": transformer_options}
    try:
        return executor(*args, **kwargs)
    finally:
        guider.model_options = options


def calc_cond_batch(executor: Any, model: Any, conds: Any, x: Any, timestep: Any, model_options: Any) -> Any:
    """Choose the second model's stack for the second model's conditioning (ComfyUI's CALC_COND_BATCH wrapper)."""
    options = model_options.get("transformer_options", {})
    guider = options.get(_GUIDER)
    if guider is not None and conds[0] is not None and conds[0] is getattr(guider, "_uncond_conds", None):
        second = stack_of(guider.uncond_model_patcher)
        model_options = {**model_options, "transformer_options": {**options, ACTIVE_STACK: second}}
    return executor(model, conds, x, timestep, model_options)
