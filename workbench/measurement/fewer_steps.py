"""The control: the plain model with as many steps as fit into the optimized side's time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Output = TypeVar("Output")

_NEARLY = 0.05
"""Part of a step's time that may be missing for the step to count as fitting."""

_TOO_LONG = 1.25
"""Above so many times the optimized side's time a control is dropped."""


@dataclass(frozen=True)
class Control(Generic[Output]):
    """The baseline with fewer steps: their number, their seconds, and their pictures."""

    steps: int
    seconds: float
    output: Output


def draw_control(
    steps: int, whole: float, each: float, allowed: float, draw: Callable[[int], tuple[float, Output]]
) -> tuple[Control[Output] | None, str]:
    """Draw the baseline with as many of its ``steps`` as fit, or return None and why there is no control.

    All in seconds: ``whole`` is what the baseline takes for its ``steps``, ``each`` for one of them but the first,
    ``allowed`` what the optimized side takes. ``draw`` is given a number of steps and returns the seconds too.
    """
    fit = _steps_that_fit(steps, whole, each, allowed)
    if fit < 1:
        return None, f"fewer steps: no step of the baseline fits into the time of the optimized {_steps(steps)}"
    seconds, output = draw(fit)
    if seconds > _TOO_LONG * allowed:
        return None, f"fewer steps: {_steps(fit)} took longer than expected, so they are no control here"
    return Control(fit, seconds, output), ""


def _steps_that_fit(steps: int, whole: float, each: float, allowed: float) -> int:
    """Return how many take no longer than ``allowed``: at least 0 and fewer than ``steps``.

    What a run does before and during its first step is paid once.
    """
    first = whole - each * (steps - 1)
    fit = (allowed - first) / each + _NEARLY if each else -1.0
    return min(1 + int(fit), steps - 1) if fit >= 0 else 0


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"
