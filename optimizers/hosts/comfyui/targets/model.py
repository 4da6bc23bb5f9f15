"""A MODEL as the target of techniques: which MODELs can have them, and how a clone carries them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from .....core.activity import Activity
from .....core.calls import Function
from .....core.errors import WrongObject, kind_of
from .....core.guard import Guard, Spoiled
from ..runtime.stack import ACTIVE_STACK, GUARD, KEY, RUN, AnyTechnique, RunData, Stack, run_data
from ..structure.newer import kept_memory
from ..structure.protocols import BaseModel, Executor, ModelPatcher, Options, Patcher
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


def first_of(patcher: Patcher) -> Patcher:
    """Return the MODEL that all others on the same BaseModel were cloned from.

    ComfyUI puts a clone's parent in its place when the clone is dropped while loaded. Where both go in one garbage
    collection, as after an error, ComfyUI believes from then on that the BaseModel has leaked, and collects garbage
    before each model that it loads. The first MODEL is what the loader's output holds.
    """
    model = patcher.model
    while patcher.parent is not None and patcher.parent.model is model:
        patcher = patcher.parent
    return patcher


def stack_of(patcher: ModelPatcher) -> Stack:
    """Return the stack that is attached to a MODEL; an empty one if there is none."""
    return cast(Stack, patcher.get_attachment(KEY)) or Stack()


def describe_model(patcher: object) -> str:
    """Return the model's name for messages, e.g. ``SDXL (UNetModel)``."""
    model = getattr(patcher, "model", None)
    network = getattr(model, "diffusion_model", None)
    if model is None or network is None:
        return type(patcher).__name__
    return f"{type(model).__name__} ({type(network).__name__})"


def is_unet(patcher: ModelPatcher) -> bool:
    """Return whether the model is of ComfyUI's UNet class (SD 1.x, SD 2.x, SDXL, SVD, ...)."""
    from comfy.ldm.modules.diffusionmodules.openaimodel import UNetModel

    return isinstance(patcher.model.diffusion_model, UNetModel)


def is_flow(patcher: ModelPatcher) -> bool:
    """Return whether the model was trained by flow matching: noise takes the place of the picture in its latents."""
    from comfy.model_sampling import CONST

    return isinstance(patcher.get_model_object("model_sampling"), CONST)


def inference_dtype(patcher: ModelPatcher) -> torch.dtype:
    """Return the dtype a model computes in, which can differ from the one its weights are stored in."""
    manual: torch.dtype | None = getattr(patcher.model, "manual_cast_dtype", None)
    return patcher.model.get_dtype() if manual is None else manual


def require_model(patcher: object) -> None:
    """Raise `WrongObject` unless ``patcher`` is a MODEL with a diffusion network inside."""
    needed = ("clone", "model_options", "add_wrapper_with_key", "set_attachments")
    missing = [name for name in needed if not hasattr(patcher, name)]
    if missing or getattr(getattr(patcher, "model", None), "diffusion_model", None) is None:
        found = f"a {describe_model(patcher)}" if hasattr(patcher, "model") else kind_of(patcher)
        lacking = f" (it has no {', '.join(missing)})" if missing else ""
        raise WrongObject(
            f"This MODEL is {found}, not one of ComfyUI's own model patchers{lacking}.",
            "Load the model with a ComfyUI loader, or ask the maker of this loader to hand out a ModelPatcher.",
        )


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
