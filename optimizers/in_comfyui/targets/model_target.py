"""A MODEL as the target of techniques: which MODELs can have them, and how a clone carries them."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from ...core.activity import Activity
from ...core.not_copied import Function
from ...guard import Guard, Spoiled
from ..run.comfy_technique import AnyTechnique
from ..run.sampling_run import KEY, RUN, SamplerCall, SamplingRun, counted, sampling_run
from ..run.stack import ACTIVE_STACK, Stack, stack_of
from ..second_weights.moves import prepare_sampling
from ..structure.model_facts import first_of, kept_memory, require_model
from ..structure.protocols import Executor, ModelPatcher, Options


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
        clone.parent = first_of(patcher)
        wrappers: dict[str, Function] = {
            WrappersMP.OUTER_SAMPLE: outer_sample,
            WrappersMP.PREPARE_SAMPLING: partial(prepare_sampling, techniques),
            WrappersMP.SAMPLER_SAMPLE: partial(sampler_sample, stack),
            WrappersMP.PREDICT_NOISE: predict_noise,
            WrappersMP.CALC_COND_BATCH: calc_cond_batch,
            WrappersMP.APPLY_MODEL: stack.apply_model,
        }
        callbacks: dict[str, Function] = {CallbacksMP.ON_PRE_RUN: stack.begin, CallbacksMP.ON_CLEANUP: stack.finish}
        clone.remove_attachments(KEY)
        for kind in tuple(clone.wrappers):
            clone.remove_wrappers_with_key(kind, KEY)
        for event in callbacks:
            clone.remove_callbacks_with_key(event, KEY)
        if techniques:
            clone.set_attachments(KEY, stack)
            for kind, wrapper in wrappers.items():
                clone.add_wrapper_with_key(kind, KEY, wrapper)
            for event, callback in callbacks.items():
                clone.add_callback_with_key(event, KEY, callback)
        return clone


def sampler_sample(stack: Stack, executor: Executor, *args: Any, **kwargs: Any) -> Any:
    """Run a sampler, again where an evaluation was spoiled (ComfyUI's SAMPLER_SAMPLE wrapper).

    ``Stack.apply_model`` watches each evaluation of techniques that approximate.
    """
    run = sampling_run(args[2]["model_options"])
    watched = [technique for technique in stack.techniques if technique.policy.approximation]
    if not watched:
        return _sample(run, stack, executor, *args, **kwargs)
    what = tuple(technique.policy.approximation for technique in watched)
    guard = run.guard = Guard(what, kept_memory, can_begin_again=True)
    try:
        while True:
            try:
                result = _sample(run, stack, executor, *args, **kwargs)
                guard.settle()
                return result
            except Spoiled:
                guard.begin_again()
    finally:
        run.guard = None
        if guard.faults:
            for technique in watched:
                technique.runs.add(Activity(faults=dict(guard.faults)))


def _sample(run: SamplingRun, stack: Stack, executor: Executor, *args: Any, **kwargs: Any) -> Any:
    guider, sigmas, extra, *rest = args
    call = SamplerCall.of(executor, args, kwargs)
    run.begin(sigmas)
    with call.cleanup:
        call.cleanup.callback(run.begin, None)
        for technique in stack.techniques:
            technique.run_begins(run, call)
        if run.followed and rest:
            rest[0] = counted(run, rest[0])
        return executor(guider, sigmas, extra, *rest, **kwargs)


def predict_noise(executor: Executor, x: Tensor, timestep: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Make a prediction with what takes part in it (ComfyUI's PREDICT_NOISE wrapper)."""
    options: Options = args[0] if args else kwargs.get("model_options", {})
    run: SamplingRun = options.get("transformer_options", {}).get(RUN) or SamplingRun()
    compute: Function = partial(executor, x, timestep, *args, **kwargs)
    for one in reversed(run.kept.values()):
        compute = partial(one.evaluates, run, executor.class_obj, x, timestep, compute)
    return compute()


# ComfyUI's Dual Model CFG Guider runs the negative pass on a second model, but with the options of the first: all
# patches of the first model apply to both passes, and those of the second to none. For our techniques the two wrappers
# below tell the pass apart, and give it what was attached to the model it runs on.


def outer_sample(executor: Executor, *args: object, **kwargs: object) -> object:
    """Begin a run of its own, also inside of another one, and remember its guider (ComfyUI's OUTER_SAMPLE wrapper)."""
    guider = executor.class_obj
    options = guider.model_options
    run = SamplingRun(guider)
    guider.model_options = {**options, "transformer_options": {**options.get("transformer_options", {}), RUN: run}}
    try:
        return executor(*args, **kwargs)
    finally:
        guider.model_options = options


def calc_cond_batch(
    executor: Executor, model: object, conds: list[Any], x: Tensor, timestep: Tensor, model_options: Options
) -> Any:
    """Compute the passes, each with the stack of its own model (ComfyUI's CALC_COND_BATCH wrapper)."""
    options = model_options.get("transformer_options", {})
    run: SamplingRun = options.get(RUN) or SamplingRun()
    second_model = getattr(run.guider, "uncond_model_patcher", None)
    if second_model is not None and conds[0] is not None and conds[0] is getattr(run.guider, "_uncond_conds", None):
        second = stack_of(second_model)
        model_options = {**model_options, "transformer_options": {**options, ACTIVE_STACK: second}}
    compute: Function = partial(executor, model, conds, x, timestep, model_options)
    for one in reversed(run.kept.values()):
        compute = partial(one.passes, conds, x, compute)
    return compute()
