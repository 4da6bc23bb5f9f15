"""The stack: everything this pack has attached to one object, and how it takes effect around each model call.

A node attaches a new, immutable :class:`Stack` to a clone of the model. ComfyUI hands every model call to the stack's
APPLY_MODEL wrapper, which gives the techniques a private copy of that call's ``transformer_options`` for their hooks.
So removing a node gives back the untouched model, clones never see each other's settings, and the order of nodes does
not matter: techniques install in their own canonical order, inside the hooks of other packs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ...core import technique as core
from ...core.activity import Activity
from ...core.not_copied import Function, NotCopied
from ...guard import GuardedEvaluation
from ..structure.protocols import Executor, ModelPatcher, Options
from .comfy_technique import AnyTechnique, ModelCall, around_network, shapes_of
from .reporting import running_prompt
from .sampling_run import KEY, RUN, SamplingRun

ACTIVE_STACK = "paceline_active_stack"
"""Transformer option that names another stack than the wrapper's own: see ``targets/model_target.py``."""


@dataclass(frozen=True)
class Stack(NotCopied):
    """The techniques attached to one object, in canonical order. Immutable, so clones can share it."""

    techniques: tuple[AnyTechnique, ...] = ()

    def find(self, kind: str) -> AnyTechnique | None:
        return core.find(self.techniques, kind)

    def apply_model(self, executor: Executor, *args: Any, **kwargs: Any) -> Any:
        """Run one model call with the techniques in place (ComfyUI's APPLY_MODEL wrapper)."""
        options = args[5] if len(args) > 5 else kwargs.get("transformer_options", {})
        if KEY in options:  # a wrapper between us and the network starts over: the hooks are in place already
            return executor(*args, **kwargs)
        techniques = options.get(ACTIVE_STACK, self).techniques
        run: SamplingRun = options.get(RUN) or SamplingRun()
        evaluate = partial(self._evaluate, executor, args, kwargs, techniques)
        return run.guard.watch(executor.class_obj, args[0].shape, evaluate) if run.guard else evaluate(None, False)

    def _evaluate(
        self,
        executor: Executor,
        args: Sequence[Any],
        kwargs: Options,
        techniques: tuple[AnyTechnique, ...],
        evaluation: GuardedEvaluation | None,
        again: bool,
    ) -> Any:
        arguments = list(args)
        options = arguments[5] if len(arguments) > 5 else kwargs.get("transformer_options", {})
        call = ModelCall(executor.class_obj, arguments[1], options, shapes_of(arguments, kwargs), techniques)
        call.evaluation, call.again = evaluation, again
        exactly = evaluation is not None and evaluation.known.exact
        if evaluation is not None and len(arguments) > 4 and arguments[4]:
            arguments[4] = {place: list(each) for place, each in arguments[4].items()}  # networks empty these lists
        try:
            with call.cleanup:
                for technique in techniques:
                    activity = call.activities.setdefault(technique.kind, Activity(model_calls=1))
                    if exactly and technique.policy.approximation:
                        technique.install_exactly(call, activity)
                    else:
                        technique.install(call, activity)
                answered = _answered_by_others(call.transformer_options)
                if len(arguments) > 5:
                    arguments[5] = call.transformer_options
                else:
                    kwargs = {**kwargs, "transformer_options": call.transformer_options}
                result = executor(*arguments, **kwargs)
        finally:
            call.forget()
        if not answered():
            for technique in techniques:
                technique.runs.add(call.activities[technique.kind])
        return result

    def begin(self, participant: object) -> None:
        """Start counting a sampling run, and let the nodes show it (ComfyUI's ON_PRE_RUN callback)."""
        begun = []
        for technique in self.techniques:
            if technique.runs.interrupted(id(participant)):
                technique.ended()
            if technique.runs.begin(id(participant), running_prompt()):
                technique.began()
                begun.append(technique)
        _report(begun)

    def finish(self, participant: object) -> None:
        """Stop counting, and report to the log and the nodes (ComfyUI's ON_CLEANUP callback)."""
        finished = [item for item in self.techniques if item.runs.finish(id(participant))]
        lines = []
        for technique in finished:
            technique.ended()
            run = technique.runs.latest
            assert run is not None, "a run has just ended"
            run.summary = technique.summary_of(run)
            lines.append(f"{technique.title}: {run.summary.text}")
        if lines:
            logging.info("Paceline: %s", " | ".join(lines))
        _report(finished)


def _answered_by_others(transformer_options: Options) -> Callable[[], bool]:
    """Return the sign that another node's wrapper has answered in the place of the network: a step cache."""
    from comfy.patcher_extension import WrappersMP

    around = transformer_options.get("wrappers", {}).get(WrappersMP.DIFFUSION_MODEL, {})
    if all(str(key).startswith(KEY) for key in around):
        return lambda: False
    reached = []

    def outermost(executor: Function, *args: Any, **kwargs: Any) -> Any:
        reached.append(False)
        return executor(*args, **kwargs)

    def innermost(executor: Function, *args: Any, **kwargs: Any) -> Any:
        reached.append(True)
        return executor(*args, **kwargs)

    around_network(transformer_options, "outermost", outermost, outermost=True)
    around_network(transformer_options, "innermost", innermost)
    return lambda: bool(reached) and not any(reached)


def _report(techniques: list[AnyTechnique]) -> None:
    for report in dict.fromkeys(technique.report for technique in techniques):
        report()


def stack_of(patcher: ModelPatcher) -> Stack:
    """Return the stack that is attached to a MODEL; an empty one if there is none."""
    return cast(Stack, patcher.get_attachment(KEY)) or Stack()
