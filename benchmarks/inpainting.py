"""Does inpainting stay inside of the budget of Reuse Steps, with hard and soft masks, and how much is left out?

    python benchmarks/inpainting.py [--quick] [--json PATH] [--threads N] [--only hard|feathered|graded]
                                    [--solvers NAME ...] [--budgets SHARE ...] [--pairs N]

The icon model in ComfyUI draws captions that were held out from its training, from seeds that chose no constant, over
pictures of other captions. Nothing is timed: work is counted in evaluations of the network.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from shared.controls import add_pairs, held_out
from shared.distances import NOTES, in_short, of_runs
from shared.measuring import arguments
from shared.nodes import reused
from shared.record import Row, collected, report
from shared.trained import ICONS, Bench, Solver, about_weights, in_process
from torch import Tensor
from torch.nn.functional import avg_pool2d

SOLVERS = (Solver("euler", "normal", 24), Solver("dpmpp_2m", "normal", 24))
BUDGETS = (0.05, 0.15)
EDGE, FEATHER = 6, 9
"""Pixels: what a hard mask keeps at each side, and over how many its edge is blurred."""
OF_KEPT = 3
"""Seed of the pictures that are painted over."""
OF_SHARES = {"share_tenth": "of the pair that nine of ten are nearer than, as *share*"}


def masks(side: int) -> dict[str, Tensor]:
    """Return masks ``[1, 1, side, side]`` by name: 1 where all is drawn anew."""
    hard = torch.zeros(1, 1, side, side)
    hard[..., EDGE:-EDGE, EDGE:-EDGE] = 1
    graded = torch.linspace(0, 1, side).expand(1, 1, side, side).clone()
    return {"hard": hard, "feathered": avg_pool2d(hard, FEATHER, 1, FEATHER // 2), "graded": graded}


class Inpainting(Bench):
    """Draws each pair over the picture of the caption before it, where ``mask`` lets it."""

    def __init__(self, solver: Solver, mask: Tensor, pairs: int) -> None:
        super().__init__(ICONS, solver)
        self.pairs = held_out(self, pairs)
        self._mask = mask
        captions = [caption for caption, _ in self.pairs]
        over = (
            super(Inpainting, self).sample(self.patcher, captions[at - 1], OF_KEPT, solver.steps) for at in range(pairs)
        )
        self._kept = dict(zip(captions, over, strict=True))

    def sample(self, patcher: Any, prompt: str, seed: int, steps: int, sigmas: Tensor | None = None) -> Tensor:
        """Return the latent that a MODEL draws over the kept picture."""
        latent = {"samples": self._kept[prompt], "noise_mask": self._mask}
        texts, solver = (self.encode(prompt), self.encode("")), self.solver
        options = (self.witness.guidance, solver.sampler, solver.scheduler)
        drawn: Tensor = in_process.sample(patcher, *texts, latent, seed, steps, *options, sigmas=sigmas)
        return drawn


def measure(bench: Inpainting, mask: str, budgets: Sequence[float]) -> Iterator[Row]:
    """Yield a row for each budget."""
    for budget in budgets:
        numbers, pairs = of_runs(bench, list(bench.runs(reused(budget))), budget)
        numbers["share_tenth"] = sorted(pairs["share"])[-1 - len(bench.pairs) // 10]
        yield Row(f"Reuse Steps {budget:g}", f"{mask} mask, {bench.work}", quality=numbers, pairs=in_short(pairs))


def main() -> None:
    """Measure what was asked for."""
    options = arguments(__doc__.splitlines()[0], only=("hard", "feathered", "graded"), more=_more)
    rows: list[Row] = []
    for name, mask in masks(ICONS.side).items():
        for solver in SOLVERS:
            if options.only in (None, name) and solver.sampler in options.solvers:
                bench = Inpainting(solver, mask, 2 if options.quick else options.pairs)
                rows += collected(measure(bench, name, options.budgets))
    notes = NOTES | OF_SHARES | {ICONS.name: about_weights(ICONS)}
    report(rows, "the plain model with all steps, from the same seed", options.json, notes)


def _more(parser: argparse.ArgumentParser) -> None:
    names = [solver.sampler for solver in SOLVERS]
    parser.add_argument("--solvers", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--budgets", nargs="+", type=float, default=BUDGETS, metavar="SHARE")
    add_pairs(parser)


if __name__ == "__main__":
    main()
