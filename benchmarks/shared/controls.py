"""What the plain model draws with less work: with fewer steps, and without some late levels of the same schedule.

Fewer steps move the early noise levels too, which decide the picture, so the second is mostly nearer. What leaves out
more than half of the levels takes early ones too, from a fifth of the schedule on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import torch

from . import icons
from .distances import Pairs, quality
from .trained import EMOJI, ICONS, ICONS_VIDEO, Bench

HELD_OUT = 9000
"""Seed of the first held-out pair."""
PAIRS = 32
"""In a whole table."""

Drawn = tuple[dict[str, float], Pairs]
"""What it came to, and of each pair."""


def add_pairs(parser: argparse.ArgumentParser) -> None:
    """Let the command line say how many pairs are drawn."""
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of caption and seed")


def held_out(bench: Bench, count: int = PAIRS, captions: int | None = None) -> list[tuple[str, int]]:
    """Return so many pairs of a caption that the model was not trained on and a seed.

    The first ones of ``PAIRS`` captions, or so many ``captions`` spread over all of them, again and again. No constant
    and no preset was chosen by them.
    """
    chosen: Sequence[str] = EMOJI.prompts  # it was trained on all captions
    if bench.witness != EMOJI:
        of = (icons.MOVING, icons.MOTIONS) if bench.witness.frames else (icons.SHAPES, icons.STYLES)
        judged = {*ICONS.prompts, *ICONS_VIDEO.prompts}
        unseen = [caption for caption in icons.never_trained(*of) if caption not in judged]
        chosen = unseen[:: max(1, len(unseen) // PAIRS)][:: PAIRS // (captions or PAIRS)]
    distinct = min(captions or count, len(chosen))
    return [(chosen[number % distinct], HELD_OUT + number) for number in range(count)]


def fewer_steps(bench: Bench, left: int) -> Drawn:
    """Return what the plain model draws with so many steps."""
    numbers, pairs = quality(bench, (bench.plain(*pair, left) for pair in bench.pairs))
    bench.counted.pictures = 0.0
    bench.sample(bench.patcher, *bench.pairs[0], left)
    return numbers | {"evaluations": bench.counted.pictures / bench.passes}, pairs


def late_levels(bench: Bench, left: int) -> Drawn | None:
    """Return what it draws without some late levels, so many left: of the choices the nearest in the mean, or None."""
    steps = bench.solver.steps
    found = [without_levels(bench, levels) for levels in choices(steps, steps - left)]
    return max(found, key=lambda one: one[0]["psnr"], default=None)


def tenths(steps: int) -> list[int]:
    """Return four tenths to nine tenths of some steps, and all but one."""
    return sorted({*(round(steps * part / 10) for part in range(4, 10)), steps - 1})


def choices(steps: int, left_out: int) -> list[list[int]]:
    """Return which levels may go where so many are left out, numbers from 0: what Compare Models leaves out, and more.

    The last but two and every second one before it; as many evenly over the last half, or over the last four fifths.
    """
    from paceline.measure.evidence import kept_levels

    kept = kept_levels(steps, steps - left_out)
    found = [] if kept is None else [sorted(set(range(steps)) - set(kept))]
    for part in (steps // 2, steps * 4 // 5):
        if left_out < part:
            found.append([steps - part + int((number + 0.5) * part / left_out) for number in range(left_out)])
    return found


def others(bench: Bench) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield what the numbers can be held against besides."""
    half = bench.patcher.clone()
    half.set_model_compute_dtype(torch.bfloat16)
    yield "another seed", quality(bench, (bench.plain(prompt, seed + 500) for prompt, seed in bench.pairs))[0]
    yield "bf16", quality(bench, (bench.sample(half, *pair, bench.solver.steps) for pair in bench.pairs))[0]


def without_levels(bench: Bench, levels: Sequence[int]) -> Drawn:
    """Return what it draws without these levels, numbers from 0."""
    sigmas, left = bench.without(levels), bench.solver.steps - len(levels)
    bench.counted.pictures = 0.0
    drawn = [bench.sample(bench.patcher, *pair, left, sigmas) for pair in bench.pairs]
    numbers, pairs = quality(bench, drawn)
    return numbers | {"evaluations": bench.counted.pictures / bench.passes / len(bench.pairs)}, pairs
