"""One part of a pipeline with everything this package has put on it.

All methods of the part that are called from outside (``forward``; ``encode``, ``decode`` and their like of a VAE) go
through the host, which tells the techniques about each call. That runs as plain Python, compiled or not: values that
depend on the call (size, step) are prepared there for the hooks inside.
"""

from __future__ import annotations

import sys
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from threading import RLock, get_ident
from typing import Any, ClassVar

import torch
from torch import Tensor

from ....core import technique as core
from ....core.errors import UnsupportedModel
from ....core.shared import Args, Function, Kwargs
from ....core.technique import ATTENTION, COMPILATION, INT8, PRECISION, QKV_FUSION, STEP_REUSE, TOKEN_MERGING
from ...guard import Guard, GuardedEvaluation
from .claims import Claim, called_by, pipeline_on, schedule_of
from .components import CONTROLNET, DENOISER, VAE, Component
from .counted import Counted
from .entries import Entries
from .patches import Layers, Patches
from .run import PipelineCall, PipelineRun

HOST = "_paceline_host"
"""Attribute of a part with its host. Both are freed together; a table of all hosts would keep every part in memory."""

ORDER = (PRECISION, INT8, QKV_FUSION, TOKEN_MERGING, ATTENTION, COMPILATION, STEP_REUSE)
"""The canonical order, but for attention, which comes after token merging here: both are reached through torch function
modes (see ``AttentionIntercept``), and the innermost mode, put on first, is asked first. And int8 is put on before
projections are fused: torchao's weights cannot be joined, so their layers are left as they are."""

CHECKPOINTS = "gradients are computed with checkpoints, which run layers again when the call is over"
OTHER_THREAD = "another thread draws with it at the same time"


class PipelineTechnique(Counted):
    """One optimization of one component, made from its settings alone.

    ``roles``: which parts of a pipeline it is for, if the user does not say.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]

    def __init__(self, settings: Any) -> None:
        super().__init__()
        self.settings = settings

    @abstractmethod
    def attach(self, host: Host, patches: Patches) -> None:
        """Prepare it for ``host.component``, with what it changes in ``patches``, and make its policy.

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

    def replaced(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the component's tensors whose values it has replaced, with what they get back when it is undone."""
        yield from ()


class Host:
    """The techniques on one component.

    Attributes:
        claims: what was asked for, by whom; of one kind the last one is there.
        techniques: in canonical order.
        left_out: techniques that cannot help this component, with the reason, by kind.
        inner: what each of the component's entries runs: its own method, or it compiled.
        layers: what is on the layers while a call goes on.
        run: where the pipeline is in its schedule; call: what goes on of it, None for what is no call of a network.
        again: whether the same call was made before, and its numbers are wrong.
        evaluation: what the guard of approximate attention wants to know of the call that goes on; None without one.
    """

    def __init__(self, component: Component, claims: Sequence[Claim] = ()) -> None:
        self.component, self.claims = component, tuple(claims)
        self._optional = {one.technique.kind: one.optional for one in claims}
        self.left_out: dict[str, tuple[PipelineTechnique, str]] = {}
        self.techniques = core.in_order([one.technique(one.settings) for one in claims], ORDER)
        self._entries = Entries(component)
        self.inner = dict(self._entries.below)
        self.evaluation: GuardedEvaluation | None = None
        self.again = False
        self.run = PipelineRun()
        self.call: PipelineCall | None = None
        self._guard: Guard | None = None
        self._patches: list[Patches] = []
        self._methods: dict[str, Function] = {}
        self.layers = Layers(())
        self._lock, self._running = RLock(), False
        self._in_run, self._thread = False, 0
        self._schedule: object = None
        self._caller: weakref.ref[Any] | None = None

    @property
    def pipeline(self) -> Any:
        """The pipeline that runs the component; before its first run, or if it is gone, one that asked for something.

        None for a model on its own.
        """
        caller = None if self._caller is None else self._caller()
        return caller or next((one for claim in reversed(self.claims) if (one := claim.pipeline) is not None), None)

    def find(self, kind: str) -> PipelineTechnique | None:
        return core.find(self.techniques, kind)

    def wrap_entries(self, make: Callable[[Function], Function]) -> None:
        """Let every entry run ``make(what it ran)``."""
        self.inner = {name: make(inner) for name, inner in self.inner.items()}

    def attach(self) -> None:
        """Put everything on; if one technique cannot, nothing stays on and its error is raised."""
        try:
            for technique in self.techniques:
                self._attach(technique)
        except BaseException:
            self._undo()
            raise
        self.techniques = tuple(item for item in self.techniques if item.kind not in self.left_out)
        self.layers = Layers(wrap for patches in self._patches for wrap in patches.wraps)
        made = [(name, make) for patches in self._patches for name, make in patches.methods.items()]
        self._entries.put_on(HOST, self, [name for name, _ in made])
        self._methods = {name: make(self._entries.below[name]) for name, make in made}

    def detach(self) -> None:
        self.end_run()
        self._entries.take_off()
        self._undo()

    def replaced(self) -> Iterator[tuple[Tensor, Tensor]]:
        for technique in self.techniques:
            yield from technique.replaced()

    def _attach(self, technique: PipelineTechnique) -> None:
        patches = Patches()
        try:
            technique.attach(self, patches)
        except UnsupportedModel as error:
            patches.undo()
            if not self._optional[technique.kind]:
                raise
            self.left_out[technique.kind] = (technique, error.problem)
        except BaseException:
            patches.undo()
            raise
        else:
            self._patches.append(patches)

    def _undo(self) -> None:
        while self._patches:
            self._patches.pop().undo()

    def enter(self, entry: str, args: Args, kwargs: Kwargs) -> object:
        """Run a call of one of the component's methods, one at a time; those inside of it run as they are."""
        if entry in self._methods:
            return self._methods[entry](*args, **kwargs)
        with self._lock:
            if self._running or not self.techniques:
                return self._entries.below[entry](*args, **kwargs)
            self._running, aside = True, ""
            try:
                hook = getattr(self.component.part, "_hf_hook", None)
                if self.component.role == VAE and entry != "forward" and hook is not None:
                    hook.pre_forward(self.component.part)  # accelerate moves weights inside of ours, not outside
                aside = self._stepped_aside()
                if aside:
                    return self._evaluate(entry, args, kwargs, aside)
                self.begin_run()
                self.call = PipelineCall.of(self.component.name, args, kwargs)
                result = self.techniques[-1].call(self, partial(self._compute, entry), args, kwargs)
            except BaseException:
                if not aside:  # else the run is another's
                    self.end_run()
                raise
            finally:
                self._running, self.call = False, None
            if self._schedule is None:
                self.end_run()
            return result

    def _stepped_aside(self) -> str:
        """Return why this call is made without what is on the layers; "" if with it."""
        part = self.component.part
        if torch.is_grad_enabled() and getattr(part, "is_gradient_checkpointing", False):
            return CHECKPOINTS
        if self._in_run and self._schedule is not None and self._thread != get_ident():
            # The run of a thread that is still inside of its pipeline must not be mixed with ours.
            there = pipeline_on(sys._current_frames().get(self._thread))
            if there is not None and there is self.pipeline and self._schedule is not schedule_of(called_by()):
                return OTHER_THREAD
        return ""

    def begin_run(self) -> None:
        """Begin a run, unless the schedule is that of the run that goes on.

        A run has one schedule, and ends before the next begins, after an error, and when the techniques are taken off.
        A part that has no schedule, such as a VAE, has a run for each call.
        """
        caller = called_by()
        self._caller = None if caller is None else weakref.ref(caller)
        sampled = self.component.role in (DENOISER, CONTROLNET)
        schedule = schedule_of(self.pipeline) if sampled else None
        if self._in_run and schedule is self._schedule:
            return
        self.end_run()
        self._in_run, self._schedule, self._thread = True, schedule, get_ident()
        self.run = PipelineRun()
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

    def _compute(self, entry: str, *args: object, **kwargs: object) -> object:
        def evaluate(evaluation: GuardedEvaluation | None, again: bool) -> object:
            self.evaluation, self.again = evaluation, again
            try:
                return self._evaluate(entry, args, kwargs)
            finally:
                self.evaluation = None

        guard, attention = self._guard, self.find(ATTENTION)
        if guard is None or attention is None:
            return evaluate(None, False)
        size = next((value.shape for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        # A pipeline cannot begin again.
        result: object = guard.watch(self.component.part, size, evaluate, waiting=True)
        attention.run.faults |= guard.faults
        return result

    def _evaluate(self, entry: str, args: Args, kwargs: Kwargs, aside: str = "") -> object:
        """Make one call; with a reason to step aside, only what has changed the weights goes on."""
        for technique in self.techniques:
            technique.begin_call()
        for technique in self.techniques:
            if not aside:
                technique.before(self, args, kwargs)
            elif technique.kind not in (PRECISION, COMPILATION):
                technique.activity.fall_back(aside)
        with ExitStack() as stack:
            for technique in self.techniques:
                stack.enter_context(technique.around())
            if not aside:
                stack.enter_context(self.layers.on())
            result = self.inner[entry](*args, **kwargs)
        for technique in self.techniques:
            technique.end_call()
        return result


def host_of(part: object) -> Host | None:
    """Return the host of a part of a pipeline; None if there is none. What torch.compile wraps is looked through."""
    for one in (part, getattr(part, "_orig_mod", None)):
        host: Host | None = getattr(one, "__dict__", {}).get(HOST)
        if host is not None and host.component.part is one:
            return host
    return None
