"""A MODEL as the target of techniques: which MODELs can have them, and how a clone carries them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from .....core.activity import Activity
from .....core.calls import Function
from ....guard import Guard, Spoiled
from ..runtime.run import GUARD, RUN, RunData, run_data
from ..runtime.stack import ACTIVE_STACK, Stack, stack_of
from ..runtime.technique import KEY, AnyTechnique
from ..structure.model import first_of, require_model
from ..structure.newer import kept_memory
from ..structure.protocols import BaseModel, Executor, ModelPatcher, Options
from ..weights.moves import prepare_sampling

GUIDER = "guider"
"""Name of the run's guider among its data."""


class ModelTarget:
    """A MODEL that techniques are attached to; `WrongObject` if it is not one of ComfyUI's own patchers.

    Clones carry the techniques; the MODEL itself is never changed.
    """

    def __init__(self, patcher: ModelPatcher) -> None:
        require_model(patcher)
        self.patcher = patcher

    @property
    def techniques(self) -> tuple[AnyTechnique, ...]:
        return stack_of(self.patcher).techniques

    def with_techniques(self, techniques: tuple[AnyTechnique, ...]) -> ModelPatcher:
        from comfy.patcher_extension import CallbacksMP, WrappersMP

        patcher = self.patcher
        for technique in (*self.techniques, *techniques):
            patcher = technique.model_for(patcher, techniques)
        clone, stack = patcher.clone(), Stack(techniques)
        watched = [technique for technique in techniques if technique.policy.approximation]
        clone.parent = first_of(patcher)
        wrappers: list[tuple[str, Function]] = [
            (WrappersMP.OUTER_SAMPLE, outer_sample),
            (WrappersMP.PREPARE_SAMPLING, partial(prepare_sampling, techniques)),
            (WrappersMP.CALC_COND_BATCH, calc_cond_batch),
            (WrappersMP.APPLY_MODEL, stack.apply_model),
            *([(WrappersMP.SAMPLER_SAMPLE, partial(guarded_sample, watched))] if watched else []),
            *(pair for technique in techniques for pair in technique.wrappers()),
        ]
        callbacks: dict[str, Function] = {
            CallbacksMP.ON_PRE_RUN: stack.begin,
            CallbacksMP.ON_CLEANUP: stack.finish,
            CallbacksMP.ON_DETACH: stack.detached,
        }
        clone.remove_attachments(KEY)
        for kind in tuple(clone.wrappers):
            clone.remove_wrappers_with_key(kind, KEY)
        for event in callbacks:
            clone.remove_callbacks_with_key(event, KEY)
        if techniques:
            clone.set_attachments(KEY, stack)
            for kind, wrapper in dict.fromkeys(wrappers):  # of two that follow the sampler, one is enough
                clone.add_wrapper_with_key(kind, KEY, wrapper)
            for event, callback in callbacks.items():
                clone.add_callback_with_key(event, KEY, callback)
        return clone


def guarded_sample(watched: Sequence[AnyTechnique], executor: Executor, *args: Any, **kwargs: Any) -> Any:
    """Run a sampler, again where an evaluation was spoiled (ComfyUI's SAMPLER_SAMPLE wrapper, the outermost of ours).

    ``watched``: the techniques that approximate; ``Stack.apply_model`` watches each evaluation.
    """
    kept = run_data(args[2]["model_options"])
    what = tuple(technique.policy.approximation for technique in watched)
    guard = kept[GUARD] = Guard(what, kept_memory, can_begin_again=True)
    try:
        while True:
            try:
                result = executor(*args, **kwargs)
                guard.settle()
                return result
            except Spoiled:
                guard.begin_again()
    finally:
        del kept[GUARD]
        if guard.faults:
            for technique in watched:
                technique.runs.add(Activity(faults=dict(guard.faults)))


# ComfyUI's Dual Model CFG Guider runs the negative pass on a second model, but with the options of the first: all
# patches of the first model apply to both passes, and those of the second to none. For our techniques the two wrappers
# below tell the pass apart, and give it what was attached to the model it runs on.


def outer_sample(executor: Executor, *args: object, **kwargs: object) -> object:
    """Begin a run of its own, also inside of another one, and remember its guider (ComfyUI's OUTER_SAMPLE wrapper)."""
    guider = executor.class_obj
    options = guider.model_options
    data = RunData({GUIDER: guider})
    guider.model_options = {**options, "transformer_options": {**options.get("transformer_options", {}), RUN: data}}
    try:
        return executor(*args, **kwargs)
    finally:
        guider.model_options = options


def calc_cond_batch(
    executor: Executor, model: BaseModel, conds: list[object], x: Tensor, timestep: Tensor, model_options: Options
) -> object:
    """Choose the second model's stack for the second model's conditioning (ComfyUI's CALC_COND_BATCH wrapper)."""
    options = model_options.get("transformer_options", {})
    guider = options.get(RUN, {}).get(GUIDER)
    second_model = getattr(guider, "uncond_model_patcher", None)
    if second_model is not None and conds[0] is not None and conds[0] is getattr(guider, "_uncond_conds", None):
        second = stack_of(second_model)
        model_options = {**model_options, "transformer_options": {**options, ACTIVE_STACK: second}}
    return executor(model, conds, x, timestep, model_options)
