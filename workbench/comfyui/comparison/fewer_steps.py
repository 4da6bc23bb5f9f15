"""The control: would the plain model with fewer steps, in the same time, do as well as the optimized one?"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from .rounds import Output, Rounds, SideRuns, TimedRun

_NEARLY = 0.05
"""A step that lacks so little of its time fits."""

_TOO_LONG = 1.25
"""A control that took so many times the optimized side's time is none."""


@dataclass(frozen=True)
class Control:
    """The baseline with fewer steps: how many, the seconds that they took, and what they gave."""

    steps: int
    seconds: float
    output: Output


def steps_that_fit(steps: int, baseline: list[TimedRun], optimized: list[TimedRun]) -> int:
    """Return how many of a baseline's steps take no longer than the optimized side took for all of its own.

    At least 0 and fewer than ``steps``. What a run does before and during its first step is paid once.
    """
    whole, each = _median(baseline, "sampling_seconds"), _median(baseline, "step_seconds")
    allowed = _median(optimized, "sampling_seconds")
    if whole is None or allowed is None or not each:
        return 0
    first = whole - each * (steps - 1)
    fit = (allowed - first) / each + _NEARLY
    return min(1 + int(fit), steps - 1) if fit >= 0 else 0


def draw_fewer_steps(rounds: Rounds, steps: int, baseline: SideRuns, optimized: SideRuns) -> tuple[Control | None, str]:
    """Draw the baseline with as many of its ``steps`` as fit, or return None and why there is no control."""
    fit = steps_that_fit(steps, baseline.runs, optimized.runs)
    if fit < 1:
        return None, f"fewer steps: no step of the baseline fits into the time of the optimized {_steps(steps)}"
    seconds, output = rounds.draw(baseline.side.model, fit)
    allowed = _median(optimized.runs, "sampling_seconds")
    if allowed is not None and seconds > _TOO_LONG * allowed:
        return None, f"fewer steps: {_steps(fit)} took longer than expected, so they are no control here"
    return Control(fit, seconds, output), ""


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _median(runs: list[TimedRun], part: str) -> float | None:
    values = [value for run in runs if (value := getattr(run, part)) is not None]
    return median(values) if values else None
