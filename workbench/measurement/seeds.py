"""Compare two ways to draw: without and with an optimization in turn, each round from another seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from PIL import Image
from torch import Tensor

from ...core.errors import require_integer
from .evidence import Evidence, FewerSteps
from .fewer_steps import draw_control
from .picture import Font, comparison_sheet
from .quality import average, compare_pictures, distances, farthest, no_picture, seed_change
from .speedup import MOST_ROUNDS, interleaved, measure_speedup
from .verdict import Verdict, judge
from .verdict_text import difference_lines, in_seconds


@dataclass(frozen=True)
class Drawn:
    """What one sampling run gave: pictures, uint8 ``[pictures, height, width, 3]``, and the seconds that it took."""

    pictures: Tensor
    seconds: float


Draw = Callable[[bool, int, int], Drawn]
"""Draws once: whether with the optimization, from which seed, counted from 0, and in how many steps."""


@dataclass(frozen=True)
class Measured:
    """The result: the verdict, the lines below it, and a sheet with the pictures and the text."""

    verdict: Verdict
    lines: list[str]
    sheet: Image.Image


def measure(draw: Draw, seeds: int, steps: int, font: Callable[[int], Font] | None = None) -> Measured:
    """Draw from each of the seeds without and with the optimization, and judge the difference.

    Before, both draw from the first seed once, untimed; the baseline's picture shows what it does from run to run.
    Where the optimization is faster and draws other pictures, the baseline draws them all in fewer steps too.
    ``font`` is for the sheet, see ``comparison_sheet``.

    `InvalidSetting` for less than two seeds, more than ``MOST_ROUNDS``, and pictures that differ in size.
    """
    require_integer("seeds", seeds, 2, MOST_ROUNDS)
    repeated, _ = (draw(optimized, 0, steps) for optimized in (False, True))
    runs: dict[bool, list[Drawn]] = {False: [], True: []}
    for number in range(seeds):
        for optimized in interleaved((False, True), number):
            runs[optimized].append(draw(optimized, number, steps))
    before, after = ([run.seconds for run in runs[optimized]] for optimized in (False, True))
    baseline, changed = _pictures(runs[False]), _pictures(runs[True])
    found, speedup = distances(changed, baseline), measure_speedup(before, after)
    difference = average(found)
    broken = no_picture("The baseline's image", baseline) or no_picture("The optimized image", changed)
    control, why_none = None, ""
    if speedup.faster and difference.rmse and not broken and steps > 1:
        whole, allowed = median(before), median(after)
        control, why_none = draw_control(steps, whole, whole / steps, allowed, lambda fit: _all(draw, seeds, fit))
    fewer = None
    if control is not None:
        fewer = FewerSteps(control.steps, steps, control.seconds, compare_pictures(control.output, baseline))
    evidence = Evidence(
        speedup=speedup,
        difference=difference,
        same_bits=False,  # of pictures only their 8 bits are known
        seed=seed_change([[run.pictures for run in runs[False]]]),
        repeat=max(distances(repeated.pictures, runs[False][0].pictures), key=lambda one: one.rmse),
        broken=broken,
        farthest=farthest(changed, baseline, found),
        count=len(baseline),
        fewer_steps=fewer,
    )
    verdict = judge(evidence)
    lines = [f"sampling: baseline {in_seconds(before)}, optimized {in_seconds(after)}; {seeds} seeds in turn"]
    lines += [*difference_lines(evidence), *([why_none] if why_none else [])]
    column = None if control is None else (f"{control.steps} steps", control.output)
    sheet = comparison_sheet(baseline, changed, verdict.text, lines, column, evidence.worst, font)
    return Measured(verdict, lines, sheet)


def _all(draw: Draw, seeds: int, steps: int) -> tuple[float, Tensor]:
    runs = [draw(False, number, steps) for number in range(seeds)]
    return median([run.seconds for run in runs]), _pictures(runs)


def _pictures(runs: list[Drawn]) -> Tensor:
    return torch.cat([run.pictures for run in runs])
