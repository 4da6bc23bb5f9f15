"""Tell listeners about a scheduler's steps, for as long as a run goes on.

How many passes there are, and how guidance joins them, only the pipeline knows; the result is an argument of
``scheduler.step``.
"""

from __future__ import annotations

import inspect
from types import MethodType
from typing import Any, Protocol

from .....core.shadow import Shadows


class Listener(Protocol):
    """Who is told."""

    def before_step(self, scheduler: Any, arguments: dict[str, Any]) -> None:
        """Look at the arguments of a step by their names, and change them."""

    def after_step(self, scheduler: Any) -> None:
        """Note that a step is over."""


class StepHook:
    """Stands in the place of ``scheduler.step`` while it has listeners."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._step = scheduler, scheduler.step
        self.__signature__ = inspect.signature(scheduler.step)  # pipelines read which arguments it takes
        self._listeners: list[Listener] = []
        self._shadows = Shadows()
        self._shadows.put(scheduler, "step", self)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        bound = self.__signature__.bind(*args, **kwargs)
        for listener in tuple(self._listeners):
            listener.before_step(self._scheduler, bound.arguments)
        result = self._step(*bound.args, **bound.kwargs)
        for listener in tuple(self._listeners):
            listener.after_step(self._scheduler)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return the scheduler's own step, for a copy of it."""
        copied = memo.get(id(self._scheduler))
        return self if copied is None else MethodType(type(copied).step, copied)

    def tell(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def leave(self, listener: Listener) -> None:
        """Remove a listener; without any the scheduler has its own step again."""
        if listener in self._listeners:
            self._listeners.remove(listener)
        if not self._listeners:
            self._shadows.undo()


def step_hook_of(scheduler: Any) -> StepHook:
    """Return the hook of a scheduler's steps; the caller must add a listener."""
    found = scheduler.__dict__.get("step")
    return found if isinstance(found, StepHook) else StepHook(scheduler)
