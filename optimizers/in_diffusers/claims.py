"""Who uses a component: which pipeline runs it now, found where it is called from, and who asked for what.

Pipelines share components (``from_pipe``, a base model and its refiner), and a component does not know by whom it is
called. What is known of a run, its scheduler, its number of steps and its guidance, is the caller's. Each pipeline may
ask for something and give it back.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch.nn import Module


@dataclass(frozen=True)
class Claim:
    """What somebody has asked for on a component.

    Attributes:
        technique: its class; ``settings``: what it is made from.
        owner: the pipeline that was given to ``optimize``; None for the component itself.
        optional: whether it is left out where it cannot help; else that is an error.
    """

    technique: type[Any]
    settings: Any
    owner: weakref.ref[Any] | None
    optional: bool

    @property
    def pipeline(self) -> Any:
        """The pipeline that has asked; None if it is gone, or none did."""
        return None if self.owner is None else self.owner()


_asked: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
"""The parts on which each pipeline has asked for something, also those that it has no more. It keeps none in memory."""


def remember(pipeline: Any, part: Any) -> None:
    """Note that a pipeline asks for something on a part."""
    if pipeline is not None:
        _asked.setdefault(pipeline, weakref.WeakSet()).add(part)


def asked_on(pipeline: Any) -> tuple[Any, ...]:
    """Return the parts on which a pipeline has asked for something."""
    return tuple(_asked.get(pipeline, ()))


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
