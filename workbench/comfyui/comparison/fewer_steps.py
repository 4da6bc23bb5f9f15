"""The control in ComfyUI: the baseline with as many steps as fit into the optimized side's time."""

from __future__ import annotations

from statistics import median

from ...measurement import fewer_steps
from .rounds import Output, Rounds, SideRuns, TimedRun

Control = fewer_steps.Control[list[Output]]


def draw_fewer_steps(rounds: Rounds, steps: int, baseline: SideRuns, optimized: SideRuns) -> tuple[Control | None, str]:
    """Draw the baseline with as many of its ``steps`` as fit, from all seeds; or return None and why."""
    whole, each = _median(baseline.runs, "sampling_seconds"), _median(baseline.runs, "step_seconds")
    allowed = _median(optimized.runs, "sampling_seconds")

    def draw(fit: int) -> tuple[float, list[Output]]:
        drawn = [rounds.draw(baseline.side.model, seed, fit) for seed in range(len(baseline.outputs))]
        return median(seconds for seconds, _ in drawn), [output for _, output in drawn]

    return fewer_steps.draw_control(steps, whole, each, allowed, draw)


def _median(runs: list[TimedRun], part: str) -> float:
    """Return 0 for what was not measured: no step fits then."""
    return median([getattr(run, part) or 0.0 for run in runs])
