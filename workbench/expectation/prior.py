"""What Reuse Steps may be worth before anything has run: from the number of steps, the solver and what is allowed."""

from __future__ import annotations

import math

from ...optimizers.step_reuse.rule import BEGINNING, longest_row
from ...optimizers.step_reuse.samplers import FEWEST_STEPS, sampler_of
from .expect import REUSED, Range

ALWAYS = 3
"""Evaluations at the end that are always computed."""

PART, POWER = 0.45, 0.35
"""The usual gain at a limit of 0.05, as a part of the largest possible one; it grows with the limit to this power."""

SPREAD = 2.0
"""In 9 of 10 workflows the part is at most this many times the usual one."""


def prior(steps: int | None, solver: str | None, limit: float) -> Range:
    """Return how many times fewer evaluations to expect: from 1 on, as the model is not known."""
    if steps is None or steps < FEWEST_STEPS:
        return Range(1.0, 1.0, 1.0)
    budget = limit / REUSED.high  # about what is chosen on a UNet; other networks get less
    longest, _ = longest_row(sampler_of(solver).order, budget, steps)
    free = max(0.0, steps - max(steps * BEGINNING, math.sqrt(steps)) - ALWAYS)
    most = steps / (steps - free * longest / (longest + 1)) - 1
    part = PART * (limit / 0.05) ** POWER
    return Range(1.0, 1 + most * min(1.0, part), 1 + most * min(1.0, part * SPREAD))
