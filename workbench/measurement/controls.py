"""The controls: what the plain model draws in the optimized side's time, without any node.

It can take fewer steps, or leave some late noise levels of the same schedule out, which is mostly nearer: fewer steps
move the early levels too, and these decide the picture.
"""

from __future__ import annotations

LATE, FEWER = "late_levels", "fewer_steps"
CONTROLS = (FEWER, LATE)
"""With a sampler that takes no levels, only a number of steps, both are the same: then the first counts."""

TOO_LONG = 1.25
"""Above so many times the optimized side's time a control is dropped."""

_NEARLY = 0.05
"""Part of a step's time that may be missing for the step to count as fitting."""


def steps_that_fit(steps: int, whole: float, each: float, allowed: float) -> int:
    """Return how many steps take no longer than ``allowed``: at least 0 and fewer than ``steps``.

    All in seconds: ``whole`` is what all ``steps`` take, ``each`` what one of them but the first does. What a run does
    before and during its first step is paid once.
    """
    first = whole - each * (steps - 1)
    fit = (allowed - first) / each + _NEARLY if each else -1.0
    return min(1 + int(fit), steps - 1) if fit >= 0 else 0


def kept_levels(steps: int, kept: int) -> list[int] | None:
    """Return which ``kept`` of ``steps`` noise levels are evaluated where late ones are left out.

    Left out is every second one from the third last backwards; of less than 6, which all decide the picture but the
    last ones, as many evenly over the last half. None where there are not so many, or none is left out.
    """
    left, half = steps - kept, steps // 2
    out = {steps - 3 - 2 * number for number in range(left)}
    if steps < 6:
        out = {steps - half + int((number + 0.5) * half / left) for number in range(left)}
    possible = len(out) == left and min(out, default=0) > 0
    return [level for level in range(steps) if level not in out] if possible else None
