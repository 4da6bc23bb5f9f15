"""One part of a pipeline with everything this package has put on it.

All methods of the part that are called from outside (``forward``; ``encode``, ``decode`` and their like of a VAE) go
through the host, which tells the techniques about each call. That runs as plain Python, compiled or not: values that
depend on the call (size, step) are prepared there for the hooks inside.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from threading import RLock, get_ident
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..core import technique as core
from ..core.errors import UnsupportedModel
from ..core.not_copied import Args, Function, Kwargs
from ..core.technique import ATTENTION, COMPILATION, INT8, PRECISION, QKV_FUSION, STEP_REUSE, TOKEN_MERGING
from ..guard import Guard, GuardedEvaluation
from .components import CONTROLNET, DENOISER, VAE, Claim, Component
from .entries import HOST, Entries
from .patches import Patches, Wrap, all_in_call
from .pipeline_run import PipelineCall, PipelineRun, called_by, pipeline_on, schedule_of
from .pipeline_technique import PipelineTechnique

ORDER = (PRECISION, INT8, QKV_FUSION, TOKEN_MERGING, ATTENTION, COMPILATION, STEP_REUSE)
"""The canonical order, but for attention, which comes after token merging here: both are reached through torch function
modes (see ``AttentionIntercept``), and the innermost mode, put on first, is asked first. And int8 is put on before
projections are fused: torchao's weights cannot be joined, so their layers are left as they are."""

CHECKPOINTS = "gradients are computed with checkpoints, which run layers again when the call is over"
OTHER_THREAD = "another thread draws with it at the same time"


class Host:
    """The techniques on one component.

    Attributes:
        claims: what was asked for, by whom; of one kind the last one is there.
        techniques: in canonical order.
        left_out: techniques that cannot help this component, with the reason, by kind.
        running: whether a call of the component goes on.
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
        self._makes: list[tuple[str, Callable[[Function], Function]]] = []
        self._inner: dict[str, tuple[Function, Function]] = {}
        self.evaluation: GuardedEvaluation | None = None
        self.again = False
        self.run = PipelineRun()
        self.call: PipelineCall | None = None
        self._guard: Guard | None = None
        self._patches: list[Patches] = []
        self._methods: dict[str, Function] = {}
        self._wraps: list[Wrap] = []
        self._lock, self.running = RLock(), False
        self._in_method = self._in_run = False
        self._thread = 0
        self._schedule: object = None
        self._caller: weakref.ref[Any] | None = None
        self._plain_runs: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    @property
    def pipeline(self) -> Any:
        """The pipeline that runs the component; None where other code does, such as a loop of the user's own."""
        return None if self._caller is None else self._caller()

    @property
    def asker(self) -> Any:
        """The pipeline that has asked for something last; None for a model on its own."""
        return next((one for claim in reversed(self.claims) if (one := claim.pipeline) is not None), None)

    def find(self, kind: str) -> PipelineTechnique | None:
        return core.find(self.techniques, kind)

    def wrap_entries(self, make: Callable[[Function], Function], only: str = "") -> None:
        """Let every entry, or one alone, run ``make(what it ran)``."""
        self._makes.append((only, make))

    def _inside(self, entry: str, below: Function) -> Function:
        """Return the function that an entry runs; made anew only where others have changed the function below it."""
        if entry not in self._inner or self._inner[entry][0] != below:
            made = below
            for only, make in self._makes:
                made = make(made) if only in ("", entry) else made
            self._inner[entry] = below, made
        return self._inner[entry][1]

    def attach(self) -> None:
        """Put everything on; if one technique cannot, nothing stays on and its error is raised."""
        try:
            for technique in self.techniques:
                self._patches.append(Patches())
                try:
                    technique.attach(self, self._patches[-1])
                except UnsupportedModel as error:
                    if not self._optional[technique.kind]:
                        raise
                    self._patches.pop().undo()
                    self.left_out[technique.kind] = (technique, error.problem)
        except BaseException:
            self._undo()
            raise
        self.techniques = tuple(item for item in self.techniques if item.kind not in self.left_out)
        self._wraps = [wrap for patches in self._patches for wrap in patches.wraps]
        made = [(name, make) for patches in self._patches for name, make in patches.methods.items()]
        self._entries.put_on(self, [name for name, _ in made])
        self._methods = {name: make(self._entries.below[name]) for name, make in made}
        for name in self._entries.below.keys() - self._methods.keys():
            self._inside(name, self._entries.below[name])

    def detach(self) -> None:
        self.end_run()
        self._entries.take_off()
        self._undo()

    def replaced(self) -> Iterator[tuple[Tensor, Tensor]]:
        for technique in self.techniques:
            yield from technique.replaced()

    def _undo(self) -> None:
        while self._patches:
            self._patches.pop().undo()

    def enter(self, entry: str, below: Function, args: Args, kwargs: Kwargs) -> object:
        """Run a call of one of the component's methods, one at a time; those inside of it run what is ``below``."""
        if entry in self._methods:
            return self._method(entry, below, args, kwargs)
        with self._lock:
            if self.running or not self.techniques:
                return below(*args, **kwargs)
            self.running, aside = True, ""
            inside = self._inside(entry, below)
            try:
                hook = getattr(self.component.part, "_hf_hook", None)
                if self.component.role == VAE and entry != "forward" and hook is not None:
                    hook.pre_forward(self.component.part)  # accelerate moves weights inside of ours, not outside
                aside = self._stepped_aside()
                if aside:
                    return self._evaluate(inside, args, kwargs, aside)
                self.begin_run()
                self.call = PipelineCall.of(self.component.name, args, kwargs)
                result = self.techniques[-1].call(self, partial(self._compute, inside), args, kwargs)
            except BaseException:
                if not aside:  # else the run is another's
                    self.end_run()
                raise
            finally:
                self.running, self.call = False, None
            if self._schedule is None:
                self.end_run()
            return result

    def _method(self, name: str, below: Function, args: Args, kwargs: Kwargs) -> object:
        """Run what is in the place of a method that reads or changes weights; those that it calls run as they are."""
        if self._in_method:
            return below(*args, **kwargs)
        self._in_method = True
        try:
            return self._methods[name](*args, **kwargs)
        finally:
            self._in_method = False

    def _stepped_aside(self) -> str:
        """Return why this call is made without what is on the layers; "" if with it."""
        part = self.component.part
        if torch.is_grad_enabled() and getattr(part, "is_gradient_checkpointing", False):
            return CHECKPOINTS
        schedule = schedule_of(called_by())
        if schedule is not None and self._plain_runs.get(id(schedule)) is schedule:
            return OTHER_THREAD  # what has begun plain stays plain
        if self._in_run and self._schedule is not None and self._thread != get_ident():
            # The run of a thread that is still inside of its pipeline must not be mixed with ours.
            there = pipeline_on(sys._current_frames().get(self._thread))
            if there is not None and there is self.pipeline and self._schedule is not schedule:
                if schedule is not None:
                    self._plain_runs[id(schedule)] = schedule
                return OTHER_THREAD
        return ""

    def begin_run(self) -> None:
        """Begin a run, unless the schedule is that of the run that goes on.

        A run has one schedule, and ends before the next begins, after an error, and when the techniques are taken off.
        A part that has no schedule, such as a VAE, has a run for each call; so has a denoiser that no pipeline calls,
        where nobody knows which calls belong together.
        """
        caller = called_by()
        self._caller = None if caller is None else weakref.ref(caller)
        schedule = schedule_of(caller) if self.component.role in (DENOISER, CONTROLNET) else None
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

    def _compute(self, inside: Function, *args: object, **kwargs: object) -> object:
        def evaluate(evaluation: GuardedEvaluation | None, again: bool) -> object:
            self.evaluation, self.again = evaluation, again
            try:
                return self._evaluate(inside, args, kwargs)
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

    def _evaluate(self, inside: Function, args: Args, kwargs: Kwargs, aside: str = "") -> object:
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
                stack.enter_context(all_in_call(self._wraps))
            result = inside(*args, **kwargs)
        for technique in self.techniques:
            technique.end_call()
        return result


def host_of(part: object) -> Host | None:
    """Return the host of a part, or of a network in it that PEFT, DDP, EMA or torch.compile has wrapped, or None."""
    for one in part.modules() if isinstance(part, Module) else (part,):
        host: Host | None = getattr(one, "__dict__", {}).get(HOST)
        if host is not None and host.component.part is one:
            return host
    return None
