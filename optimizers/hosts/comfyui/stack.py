"""The stack: everything this pack has attached to one object, and how it takes effect around each model call.

A node attaches a new, immutable :class:`Stack` to a clone of the model. ComfyUI hands every model call to the stack's
APPLY_MODEL wrapper, which gives the techniques a private copy of that call's ``transformer_options`` for their hooks.
So removing a node gives back the untouched model, clones never see each other's settings, and the order of nodes does
not matter: techniques install in their own canonical order, inside the hooks of other packs.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from ....core import technique as core
from ....core.activity import Activity, Counter, Summary, with_faults
from ....core.calls import Function
from ....core.guard import Guard, GuardedEvaluation
from ....core.phrases import phrase
from ....core.shared import Shared
from .protocols import BaseModel, Executor, ModelPatcher, Options
from .reporting import announce, running_prompt
from .runs import Run, RunLog

KEY = "paceline"
"""Our name in ComfyUI's attachments, wrappers, callbacks and transformer options."""

ACTIVE_STACK = "paceline_active_stack"
"""Transformer option that names another stack than the wrapper's own: see ``model.calc_cond_batch``."""

PATCHES = ("patches", "patches_replace", "optimized_attention_override")
"""Transformer options with Python that runs inside of the network, which may ask at which block or step it is."""

RUN = "paceline_run"
"""Transformer option with the :class:`RunData` of one sampling run. No network sees it."""

GUARD = "guard"
"""Name of the run's guard among these data."""

Call = TypeVar("Call")
"""A call into which a technique installs itself: a :class:`ModelCall`, or one of a VAE's or ControlNet's network."""


class RunData(Shared, UserDict[str, Any]):
    """What techniques keep for one sampling run, by their keys.

    No ``dict``: ComfyUI copies those wherever it finds them in its options.
    """


def run_data(model_options: Options) -> RunData:
    """Return the data of the run that a guider's or sampler's ``model_options`` belong to."""
    data: RunData = model_options.setdefault("transformer_options", {}).setdefault(RUN, RunData())
    return data


class LostInputs(Exception):
    """A kernel has failed after it took its inputs away to free memory: the evaluation has to be computed again."""


class ModelCall(Shared):
    """One call of the network, as the techniques see it.

    Attributes:
        model: the live ``BaseModel``; never one remembered from when a node ran, as clones can move to another.
        sigmas: noise levels of the batch, ``[batch]``.
        transformer_options: this call's own copy, free to change; also reaches patches as ``extra_options``.
        activities: counts of this call, by the technique's kind.
        cleanup: undone when the call is over.
        run: data that techniques keep for the sampling run, by their keys.
        shapes: sizes of all tensors that the network is given, by the names of ``BaseModel.apply_model``: ``x`` is the
            latent, ``c_crossattn`` the text. Those of a list are ``name[0]`` and so on, those of a dict ``name.key``.
        techniques: all that take part in the call.
        foreign_patches: whether other nodes' Python runs inside of the network.
        again: whether the same call was made before, and came to nothing.
        evaluation: what its guard wants to know of it; None where nothing is approximate.
    """

    def __init__(
        self,
        model: BaseModel,
        sigmas: Tensor,
        transformer_options: Options,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        techniques: tuple[AnyTechnique, ...] = (),
    ) -> None:
        self.model = model
        self.sigmas = sigmas
        self.shapes = shapes or {}
        self.techniques = techniques
        self.foreign_patches = any(transformer_options.get(name) for name in PATCHES)
        self.transformer_options = dict(transformer_options)
        self.run: Mapping[str, Any] = self.transformer_options.pop(RUN, {})
        self.transformer_options["patches"] = dict(transformer_options.get("patches", {}))
        self.transformer_options[KEY] = self
        self.activities: dict[str, Activity] = {}
        self._counters: list[tuple[str, Counter]] = []
        self.cleanup = ExitStack()
        self.evaluation: GuardedEvaluation | None = None
        self.again = False

    def part(self) -> ModelCall:
        """Return the call as one block sees it: with counts of its own, so that it looks alike in each block."""
        part = ModelCall.__new__(ModelCall)
        vars(part).update(vars(self))
        part.activities = {kind: Activity() for kind in self.activities}
        part.count_on()
        return part

    def add(self, part: ModelCall) -> None:
        """Add the counts of a part."""
        for kind, activity in part.activities.items():
            self.activities[kind].add(activity)

    def count(self, kind: str, counter: Counter) -> None:
        """Let a technique's counter, which counts into this call, count into each of its parts while that runs."""
        self._counters.append((kind, counter))

    def count_on(self) -> None:
        """Count into this call again, after a part of it, or into this part."""
        for kind, counter in self._counters:
            counter.activity = self.activities[kind]

    def forget(self) -> None:
        """Break the reference cycle between hooks, call and options, which would keep the model in memory."""
        del self.model, self.sigmas
        self.techniques = ()
        self.transformer_options = {}


class ComfyTechnique(core.Technique, Generic[Call]):
    """One optimization attached to a MODEL, a VAE or a CONTROL_NET.

    Attributes:
        node_id: the node that has attached it, told about each run; None without a page.
        runs: counts of its runs; shared by all clones that carry this technique.
        report: tells the node about the last run; techniques of one node may share one.
        not_run, under_way: headlines before the first run, and during a run until its first call is finished.
    """

    not_run: ClassVar[str] = phrase("not sampled yet")
    under_way: ClassVar[str] = phrase("sampling")

    def __init__(self, policy: core.Policy) -> None:
        super().__init__(policy)
        self.node_id: str | None = None
        self.runs = RunLog(policy)
        self.report: Callable[[], None] = self._announce

    @abstractmethod
    def install(self, call: Call, activity: Activity) -> None:
        """Put the technique's hooks into one call."""

    def install_exactly(self, call: Call, activity: Activity) -> None:  # noqa: B027 - most leave all of it out
        """Put into one call what is left of a technique that approximates where nothing may be approximate."""

    def nothing_to_do(self, options: Options) -> str:
        """Return why it changes nothing in a call with these ``transformer_options``; "" where it may."""
        return ""

    def model_for(self, patcher: ModelPatcher, techniques: tuple[core.Technique, ...]) -> ModelPatcher:
        """Return the MODEL that ``techniques``, which are about to be attached, work on; ``patcher`` for most."""
        return patcher

    def wrappers(self) -> tuple[tuple[str, Function], ...]:
        """Return ComfyUI's events, other than model calls, that the technique wraps, with its wrappers."""
        return ()

    def unloaded(self, model: BaseModel) -> None:  # noqa: B027 - most change nothing
        """Undo changes of the weights of ``model``: it is unloaded, or another clone takes it over.

        ComfyUI does the latter before each sampling run, also if the clone is the same as in the last run.
        """

    def last_summary(self) -> Summary:
        """Return what it did in the last prompt, in all of its runs."""
        run = self.runs.latest
        if run is None:
            return Summary("waiting", self.not_run)
        found = self.summary_of(run)
        if found.state == "working":
            return found
        return self.runs.earlier.ending_with(found, run.activity)

    def summary_of(self, run: Run) -> Summary:
        """Return what it did in its latest run."""
        if run.activity.model_calls:
            return with_faults(self.policy.summarize(run.activity), run.activity)
        if run.seconds is None:
            return Summary("working", self.under_way, details=(self.policy.describe(),))
        why = (
            "the run was cancelled or failed before its first call was finished, or a guider with two models used the "
            "first one's nodes"
        )
        return Summary("inactive", phrase("no call was finished"), details=(why,))

    def _announce(self) -> None:
        announce(self.node_id, self.last_summary(), self.title)


AnyTechnique = ComfyTechnique[Any]
"""A technique, whatever it installs itself into."""


@dataclass(frozen=True)
class Stack(Shared):
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
        guard: Guard | None = options.get(RUN, {}).get(GUARD)

        def evaluate(evaluation: GuardedEvaluation | None, again: bool) -> Any:
            while True:
                try:
                    return self._evaluate(executor, args, kwargs, techniques, evaluation, again)
                except LostInputs:  # the kernel that has lost them is not asked again
                    again = True

        return evaluate(None, False) if guard is None else guard.watch(executor.class_obj, args[0].shape, evaluate)

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
        call = ModelCall(executor.class_obj, arguments[1], options, _shapes_of(arguments, kwargs), techniques)
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

    def detached(self, patcher: ModelPatcher, unpatch_all: bool) -> None:
        """Tell the techniques that a MODEL is unloaded or gets another clone (ComfyUI's ON_DETACH callback)."""
        for technique in self.techniques:
            technique.unloaded(patcher.model)

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
    """Return what tells whether a wrapper of another node has answered in the place of the network: a step cache."""
    from comfy.patcher_extension import WrappersMP

    wrappers = transformer_options.get("wrappers", {})
    around = wrappers.get(WrappersMP.DIFFUSION_MODEL, {})
    if all(str(key).startswith(KEY) for key in around):
        return lambda: False
    reached = []

    def outermost(executor: Function, *args: Any, **kwargs: Any) -> Any:
        reached.append(False)
        return executor(*args, **kwargs)

    def innermost(executor: Function, *args: Any, **kwargs: Any) -> Any:
        reached.append(True)
        return executor(*args, **kwargs)

    around = {f"{KEY}_outermost": [outermost], **around, f"{KEY}_innermost": [innermost]}
    transformer_options["wrappers"] = {**wrappers, WrappersMP.DIFFUSION_MODEL: around}
    return lambda: bool(reached) and not any(reached)


def _report(techniques: list[AnyTechnique]) -> None:
    for report in dict.fromkeys(technique.report for technique in techniques):
        report()


def _shapes_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return sizes of the arguments of ``BaseModel.apply_model`` by name, see ``ModelCall.shapes``."""
    named = [*zip(("x", "t", "c_concat", "c_crossattn"), args, strict=False), *kwargs.items()]
    return {place: size for name, value in named for place, size in _sizes(name, value)}


def _sizes(name: str, value: object) -> Iterator[tuple[str, tuple[int, ...]]]:
    if hasattr(value, "shape"):
        yield name, tuple(value.shape)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _sizes(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _sizes(f"{name}.{key}", item)
