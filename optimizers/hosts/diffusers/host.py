"""One part of a pipeline with everything this package has put on it.

The part's entry (``forward``, or ``decode`` of a VAE) is shadowed by a function that tells the techniques about each
call. That runs as plain Python, compiled or not: values that depend on the call (size, step) are prepared there for the
hooks inside.
"""

from __future__ import annotations

import functools
import weakref
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, ClassVar

from torch import Tensor

from ....core import technique as core
from ....core.activity import Activity, Summary, with_faults
from ....core.calls import Args, Function, Kwargs
from ....core.errors import UnsupportedModel
from ....core.guard import Evaluation, Guard
from ....core.technique import ATTENTION, COMPILATION, INT8, PRECISION, QKV_FUSION, STEP_REUSE, TOKEN_MERGING
from .components import CONTROLNET, DENOISER, VAE, Component
from .patches import Patches, current

HOST = "_paceline_host"
"""Attribute of a part with its host. Both are freed together; a table of all hosts would keep every part in memory."""


ORDER = (PRECISION, INT8, QKV_FUSION, TOKEN_MERGING, ATTENTION, COMPILATION, STEP_REUSE)
"""The canonical order, but for attention, which comes after token merging here: both are reached through torch function
modes (see ``AttentionIntercept``), and the innermost mode, put on first, is asked first. And int8 is put on before
projections are fused: torchao's weights cannot be joined, so their layers are left as they are."""


class PipelineTechnique(core.Technique):
    """One optimization of one component, made from its settings alone.

    Techniques are put on in canonical order, and undone backwards. ``roles``: which parts of a pipeline it is for, if
    the user does not say.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.activity = Activity()
        self.total = Activity()

    @abstractmethod
    def attach(self, host: Host, patches: Patches) -> None:
        """Put the technique on ``host.component``, with its undo in ``patches``, and make its policy.

        Raises `PacelineError` if it cannot help this component; nothing of it must stay behind then but in ``patches``.
        """

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:  # noqa: B027
        """Get ready for one call of the component with these arguments."""

    def around(self) -> AbstractContextManager[None]:
        """Return a context in which the component must run, outside of compiled code."""
        return nullcontext()

    def call(self, host: Host, compute: Function, args: Args, kwargs: Kwargs) -> object:
        """Return the component's result; ``compute`` runs it with all techniques. Only the last technique is asked."""
        return compute(*args, **kwargs)

    def begin_call(self) -> None:
        """Start counting one call anew: compiled code must find the same, empty counts in every call."""
        self.activity = Activity(model_calls=1)

    def end_call(self) -> None:
        """Add the counts of the call to the total."""
        self.total.add(self.activity)

    def summary(self) -> Summary:
        if not self.total.model_calls:
            return Summary("waiting", "not run yet")
        return with_faults(self.policy.summarize(self.total), self.total)


class Host:
    """The techniques on one component.

    Attributes:
        pipeline: for its scheduler; None for a model on its own, or once it is gone.
        techniques: in canonical order.
        optional: whether a technique that cannot help this component is left out; else that is an error.
        left_out: techniques that were, with the reason, by kind.
        inner: the function that the entry runs: the part's own method, or it compiled.
        again: whether the same call was made before, and its numbers are wrong.
        evaluation: what the guard of approximate attention wants to know of the call that goes on; None without one.
    """

    def __init__(
        self, component: Component, pipeline: object, techniques: Iterable[PipelineTechnique], optional: bool = False
    ) -> None:
        self.component = component
        self.optional = optional
        self.left_out: dict[str, tuple[PipelineTechnique, str]] = {}
        self._pipeline = weakref.ref(pipeline) if pipeline is not component.part else None
        self.techniques = core.in_order(techniques, ORDER)
        self.inner: Function = current(component.part, component.entry)
        self.running = False
        self.evaluation: Evaluation | None = None
        self.again = False
        self._guard: Guard | None = None
        self._attached = False
        self._patches = Patches()
        self._in_run = False
        self._schedule: object = None

    @property
    def pipeline(self) -> object:
        return self._pipeline() if self._pipeline is not None else None

    def find(self, kind: str) -> PipelineTechnique | None:
        return core.find(self.techniques, kind)

    def attach(self) -> None:
        """Put everything on; if one technique cannot, nothing stays on and its error is raised."""
        self._refuse_copies()
        part, entry = self.component.part, self.component.entry
        plain = self.inner
        try:
            for technique in self.techniques:
                self._attach(technique)
            self.techniques = tuple(item for item in self.techniques if item.kind not in self.left_out)
            self._patches.shadow(part, entry, self._entry(plain))
        except BaseException:
            self._patches.undo()
            raise
        self._attached = True
        part.__dict__[HOST] = self

    def detach(self) -> None:
        self.end_run()
        self._patches.undo()
        self._attached = False
        self.component.part.__dict__.pop(HOST, None)

    def __deepcopy__(self, memo: dict[int, object]) -> Host:
        """Return the host itself: a copy of the part is recognised by it, and has nothing that could be undone."""
        return self

    def _refuse_copies(self) -> None:
        """Refuse a copy of a component that was optimized: its hooks belong to the original, and cannot be undone."""
        component = self.component
        if component.part.__dict__.get(HOST) is not None and host_of(component.part) is None:
            raise UnsupportedModel(
                f"{component.name} is a copy of a {component.class_name} that was optimized when it was copied.",
                "Make the copy first, or restore the original before copying, then optimize both.",
            )

    def _attach(self, technique: PipelineTechnique) -> None:
        patches = Patches()
        try:
            technique.attach(self, patches)
        except UnsupportedModel as error:
            patches.undo()
            if not self.optional:
                raise
            self.left_out[technique.kind] = (technique, error.problem)
        except BaseException:
            patches.undo()
            raise
        else:
            self._patches.on_undo(patches.undo)

    def _entry(self, plain: Function) -> Function:
        @functools.wraps(plain)
        def run(*args: object, **kwargs: object) -> object:
            if not self._attached or self.running or not self.techniques:
                return plain(*args, **kwargs)
            self.running = True
            try:
                self._bring_weights()
                self.begin_run()
                result = self.techniques[-1].call(self, self._compute, args, kwargs)
            except BaseException:
                self.end_run()
                raise
            finally:
                self.running = False
            if self._schedule is None:
                self.end_run()
            return result

        return run

    def _bring_weights(self) -> None:
        """Let accelerate move the weights of a VAE now: around ``decode`` it does so inside of ours, not outside."""
        hook = getattr(self.component.part, "_hf_hook", None)
        if self.component.role == VAE and hook is not None:
            hook.pre_forward(self.component.part)

    def begin_run(self) -> None:
        """Begin a run, unless the schedule is that of the run that goes on.

        A run has one schedule, and ends before the next begins, after an error, and when the techniques are taken off.
        A part that has no schedule, such as a VAE, has a run for each call.
        """
        sampled = self.component.role in (DENOISER, CONTROLNET)
        schedule = getattr(getattr(self.pipeline, "scheduler", None), "timesteps", None) if sampled else None
        if self._in_run and schedule is self._schedule:
            return
        self.end_run()
        self._in_run, self._schedule = True, schedule
        for technique in self.techniques:
            technique.began()
        attention = self.find(ATTENTION)
        # In compiled code no layer can be left out.
        watched = attention is not None and attention.policy.approximation and self.find(COMPILATION) is None
        self._guard = Guard((attention.policy.approximation,)) if attention is not None and watched else None

    def end_run(self) -> None:
        """End the run that goes on, if one does."""
        if self._in_run:
            self._in_run = False
            for technique in self.techniques:
                technique.ended()

    def _compute(self, *args: object, **kwargs: object) -> object:
        def evaluate(evaluation: Evaluation | None, again: bool) -> object:
            self.evaluation, self.again = evaluation, again
            try:
                return self._evaluate(args, kwargs)
            finally:
                self.evaluation = None

        guard, attention = self._guard, self.find(ATTENTION)
        if guard is None or attention is None:
            return evaluate(None, False)
        size = next((value.shape for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        # A pipeline cannot begin again.
        result: object = guard.watch(self.component.part, size, evaluate, waiting=True)
        attention.total.faults |= guard.faults
        return result

    def _evaluate(self, args: Args, kwargs: Kwargs) -> object:
        for technique in self.techniques:
            technique.begin_call()
        for technique in self.techniques:
            technique.before(self, args, kwargs)
        with ExitStack() as stack:
            for technique in self.techniques:
                stack.enter_context(technique.around())
            result = self.inner(*args, **kwargs)
        for technique in self.techniques:
            technique.end_call()
        return result


def host_of(part: object) -> Host | None:
    """Return the host of a part of a pipeline; None if it has none, or is a copy, from which nothing can be undone.

    What torch.compile has wrapped since is looked through.
    """
    for one in (part, getattr(part, "_orig_mod", None)):
        host: Host | None = getattr(one, "__dict__", {}).get(HOST)
        if host is not None and host.component.part is one:
            return host
    return None
