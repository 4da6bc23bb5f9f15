"""One run of a pipeline: which one calls, where its schedule begins and ends, and what a call is given.

A component does not know by whom it is called. What is known of a run, its scheduler, its number of steps and its
guidance, is the caller's.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..core.not_copied import Args, Kwargs


def pipeline_on(frame: FrameType | None) -> Any:
    """Return the pipeline whose code runs in ``frame`` or called it, the nearest one; None if there is none.

    It is known by its scheduler: that of diffusers' pipelines, modular ones (``components``) and others like them.
    """
    while frame is not None:
        code = frame.f_code
        first = code.co_varnames[: min(code.co_argcount, 2)]
        for name in ("self", "components"):
            owner = frame.f_locals.get(name) if name in first else None
            if owner is not None and not isinstance(owner, Module) and has_schedule(owner):
                return owner
        frame = frame.f_back
    return None


def called_by() -> Any:
    """Return the pipeline that the code that asks was called by; None if there is none."""
    return pipeline_on(sys._getframe(1))


def schedule_of(pipeline: Any) -> object:
    """Return the timesteps of the run of a pipeline, an object of its own for each run; None without a pipeline."""
    return pipeline.scheduler.timesteps if has_schedule(pipeline) else None


def has_schedule(owner: Any) -> bool:
    """Return whether it is a pipeline with a scheduler."""
    return hasattr(getattr(owner, "scheduler", None), "timesteps")


def _number(timestep: Any) -> float:
    """Return a timestep's value, which waits for the device."""
    return float(timestep.flatten()[0] if isinstance(timestep, torch.Tensor) else timestep)


def _place_of(timestep: object, timesteps: torch.Tensor) -> int | None:
    """Return which element of ``timesteps`` a view of one is; None for other tensors. Nothing is read."""
    if not isinstance(timestep, torch.Tensor) or timestep.dtype != timesteps.dtype or not timesteps.is_contiguous():
        return None
    if timestep.untyped_storage().data_ptr() != timesteps.untyped_storage().data_ptr() or any(timestep.stride()):
        return None
    place = int(timestep.storage_offset()) - int(timesteps.storage_offset())
    return place if 0 <= place < timesteps.numel() else None


@dataclass(frozen=True)
class PipelineCall:
    """A call of a denoiser or ControlNet by a pipeline: the latent, the timestep and the text that it was given.

    Some networks are given a list of latents and one of texts: ``sample`` and ``text`` are the first of them then.

    ``shapes``: of all latents; ``key``: what else is the same in the next evaluation.
    """

    sample: Tensor
    shapes: tuple[torch.Size, ...]
    timestep: object
    text: object
    key: Hashable

    @classmethod
    def of(cls, network: str, args: Args, kwargs: Kwargs) -> PipelineCall | None:
        """Return the call of a component with this name; None if it is not called as pipelines call it."""

        def given(place: int, *names: str) -> Any:
            named = (kwargs[name] for name in names if name in kwargs)
            return next(named, args[place] if len(args) > place else None)

        samples, text = given(0, "sample", "hidden_states", "x"), given(2, "encoder_hidden_states", "cap_feats")
        samples = samples if isinstance(samples, (list, tuple)) else [samples]
        if not samples or not all(isinstance(one, Tensor) for one in samples):
            return None
        text = next(iter(text), None) if isinstance(text, (list, tuple)) else text
        shapes, scale = tuple(one.shape for one in samples), kwargs.get("conditioning_scale")
        key = (network, shapes, tuple(scale) if isinstance(scale, list) else scale)
        return cls(samples[0], shapes, given(1, "timestep", "t"), text, key)


@dataclass(frozen=True)
class _Given:
    """What one call of an evaluation was given; ``steady``: its text was the same tensor, unchanged, as before."""

    key: Hashable
    text: Callable[[], object]
    version: int | None
    steady: bool


class PipelineRun:
    """The calls of a denoiser, and of the ControlNets that add to it, while a pipeline has one schedule.

    An evaluation is the calls at one timestep, told apart by their order.

    Of a pipeline it reads the scheduler when it is asked. Without one it is always step 0, at the call's timestep.

    Attributes:
        timestep: what the denoiser was called with.
        timesteps: the scheduler's; None without a scheduler.
        began: how often the schedule began: whoever goes back in it begins again.
        first, last: numbers of the first timestep and of the last that the pipeline will ask for.
        number: of the call's timestep.
        calls: how many came before it in its evaluation.
        taking_part: rises where the networks, their texts or sizes are others than in the evaluation before.
        had_fewer: whether the evaluation before had fewer calls than the one before it.
        elsewhere: whether the step is one of another pipeline, with a scheduler of its own: this one stands still.
        stepped: set by whoever knows that the scheduler has made its step.
        over: called when the text, which only the pipeline's call holds, is gone: whatever ended it.
    """

    def __init__(self) -> None:
        self.timestep: Any = None
        self.timesteps: torch.Tensor | None = None
        self._scheduler: Any = None
        self._values: list[float] = []
        self.began = self.first = self.last = self.calls = self.taking_part = 0
        self.number = self._found = -1
        self.elsewhere = self.stepped = self.had_fewer = False
        self.over: Callable[[], None] = lambda: None
        self._most = 0
        self._given: list[_Given] = []
        self._counted: object = None
        self._call: Callable[[], PipelineCall | None] = lambda: None

    def moved_to(self, pipeline: object, timestep: object) -> None:
        """Go to a call of the denoiser."""
        self.timestep = timestep
        self._scheduler = getattr(pipeline, "scheduler", None)
        timesteps = getattr(self._scheduler, "timesteps", None)
        if timesteps is not self.timesteps:
            self.timesteps, self._values = timesteps, []

    def index(self) -> int:
        """Return the number of the step.

        Where the scheduler does not count, it is found by where the timestep stands among the scheduler's, as most
        pipelines hand on an element of them; else by its value, which waits for the device.
        """
        if self.timesteps is None:
            return 0
        counted = getattr(self._scheduler, "step_index", None)
        if counted is not None:
            return int(counted)
        if hasattr(self._scheduler, "step_index"):
            return int(getattr(self._scheduler, "begin_index", None) or 0)  # before the first step
        values = self.schedule()
        given, place = self.timestep, _place_of(self.timestep, self.timesteps)
        now = _number(given) if place is None else values[place]
        return min(range(len(values)), key=lambda i: abs(values[i] - now)) if values else 0

    def place(self) -> int:
        """Return which of the scheduler's timesteps the call is for, also where two are equal or no step was made yet.

        `index` gives equal ones the first number, as random numbers are drawn by it.
        """
        known = any(getattr(self._scheduler, name, None) is not None for name in ("step_index", "begin_index"))
        place = None if known or self.timesteps is None else _place_of(self.timestep, self.timesteps)
        return self.index() if place is None else place

    def is_at(self, timestep: object) -> bool:
        """Return whether the call is for this timestep; waits for the device where the two were made apart."""
        here = self.timestep
        if isinstance(here, torch.Tensor) and isinstance(timestep, torch.Tensor):  # of one memory: nothing is read
            places = {(one.untyped_storage().data_ptr(), one.storage_offset()) for one in (here, timestep)}
            if len(places) == 1:
                return True
        if here is timestep:
            return True
        return None not in (here, timestep) and _number(here) == _number(timestep)

    def schedule(self) -> list[float]:
        """Return the scheduler's timesteps; none without a scheduler. Read once for each run, which waits for them."""
        if not self._values and self.timesteps is not None:
            self._values = [float(value) for value in self.timesteps.tolist()]
        return self._values

    def at(self, pipeline: Any, call: PipelineCall) -> None:
        """Go to a call. It may be asked for the same one several times."""
        if self._call() is call:
            return
        self._call = weakref.ref(call)
        self.moved_to(pipeline, call.timestep)
        found = self.place()
        # Where the next timestep equals this one, the place was found for both by its value.
        same = self.schedule()[self.number : self.number + 2] if self.stepped and found == self._found else []
        twice = len(same) == 2 and same[0] == same[1]
        number = self.number + twice if found == self._found else found
        moved, begins = number != self.number, number < self.number or not self.began
        self._found, self.number, self.stepped = found, number, False
        if moved:
            self.had_fewer = not begins and self.calls + 1 < len(self._given)
            del self._given[self.calls + 1 :]
        if begins:
            self._begin(pipeline)
        self._count(moved)
        self._look_at(call)

    def _begin(self, pipeline: Any) -> None:
        # Image to image begins in the middle of the schedule, and a base model may leave the end to a refiner.
        planned, timesteps = getattr(pipeline, "num_timesteps", None), self.timesteps
        count = 0 if timesteps is None else len(timesteps)
        self.first = self.number
        self.last = (min(self.first + planned, count) if isinstance(planned, int) and planned > 0 else count) - 1
        self.began, self.taking_part = self.began + 1, self.taking_part + 1
        self._given.clear()

    def _count(self, moved: bool) -> None:
        before, self._counted = self._counted, self.timestep
        if moved:
            self.calls, self.elsewhere = 0, False
            return
        # Asked only where there are more calls than in any evaluation before: the answer may wait for the device.
        if self.calls >= self._most:
            self.elsewhere = self.elsewhere or not self.is_at(before)
        self.calls += 1
        if not self.elsewhere:
            self._most = max(self._most, self.calls)

    def _look_at(self, call: PipelineCall) -> None:
        """Notice another network, size or text. Some pipelines make texts anew for each step: that is no sign."""
        text = call.text  # in inference mode torch does not count its changes
        version = None if not isinstance(text, Tensor) or text.is_inference() else text._version
        before = self._given[self.calls] if self.calls < len(self._given) else None
        steady = before is not None and before.text() is text and before.version == version
        if before is None:
            self.taking_part += self.number != self.first
        else:
            self.taking_part += before.key != call.key or (before.steady and not steady)
        gone = (lambda _: self.over()) if steady else None
        kept: Callable[[], object] = weakref.ref(text, gone) if isinstance(text, Tensor) else lambda: text
        self._given[self.calls : self.calls + 1] = [_Given(call.key, kept, version, steady)]
