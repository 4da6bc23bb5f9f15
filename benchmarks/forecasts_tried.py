"""Which forecasts of skipped steps help, and which do not: fixed plans, no budget, real runs, beside fewer steps.

    python benchmarks/forecasts_tried.py [--quick] [--json PATH] [--threads N] [--weights PATH] [--solver NAME]

Every second step from the fourth on is forecast (the last one never), by a polynomial through the last computed steps:
of order 0 to 2, of the predicted noise, the predicted picture, or v, over the number of the step or the logarithm of
the noise level. *Taken back*: when a later step is computed, the skipped one is known better, by a polynomial of second
order through it, and the known error of the latent is put into this step's output. Reuse Steps itself decides while it
runs and is measured in step_reuse.py; this table says why it forecasts as it does.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from common import arguments
from record import Row, report
from step_reuse import ICONS, SOLVERS, Bench, about_weights, in_process
from torch import Tensor

PROMPTS = 8


@dataclass
class Trial:
    """One way to forecast; ``call`` is a PREDICT_NOISE wrapper of ComfyUI's."""

    levels: list[float]
    skipped: Sequence[int] = ()
    quantity: str = "noise"
    order: int = 0
    logarithmic: bool = False
    taken_back: bool = False
    computed: int = 0
    _number: int = 0
    _known: list[tuple[float, Tensor]] = field(default_factory=list)
    _pending: list[tuple[float, Tensor, float, Tensor, float]] = field(default_factory=list)

    def call(self, executor: Any, x: Tensor, timestep: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Compute an evaluation, or forecast it."""
        number, sigma = self._number, float(timestep[0])
        self._number += 1
        weight = 1 - self.levels[number + 1] / sigma
        place = math.log(sigma) if self.logarithmic else float(number)
        if number in self.skipped and len(self._known) > self.order:
            guess = self._picture(self._at(place, self.order), x, sigma)
            self._pending.append((place, x.clone(), sigma, guess.clone(), weight))
            return guess
        self.computed += 1
        denoised: Tensor = executor(x, timestep, *args, **kwargs)
        self._known.append((place, self._quantity(denoised, x, sigma)))
        out = denoised
        if self._pending and self.taken_back and weight > 0.02:
            for where, latent, level, guess, share in self._pending:
                truth = self._picture(self._at(where, 2), latent, level)
                out = out + (truth - guess) * (share / weight)
        self._pending.clear()
        return out

    def _at(self, place: float, order: int) -> Tensor:
        """Return the quantity at a place, by the polynomial through the last computed ones."""
        known = self._known[-(order + 1) :]
        total = torch.zeros_like(known[0][1])
        for here, value in known:
            weight = math.prod((place - other) / (here - other) for other, _ in known if other != here)
            total += weight * value
        return total

    def _quantity(self, denoised: Tensor, x: Tensor, sigma: float) -> Tensor:
        if self.quantity == "picture":
            return denoised
        if self.quantity == "noise":
            return (x - denoised) / sigma
        return (x / (sigma * sigma + 1) - denoised) * math.sqrt(sigma * sigma + 1) / sigma

    def _picture(self, value: Tensor, x: Tensor, sigma: float) -> Tensor:
        if self.quantity == "picture":
            return value
        if self.quantity == "noise":
            return x - sigma * value
        return x / (sigma * sigma + 1) - value * sigma / math.sqrt(sigma * sigma + 1)


def draw(bench: Bench, trial: Trial | None, seed: int = 1000, steps: int | None = None) -> Tensor:
    """Return latents of all prompts as one batch."""
    from comfy.patcher_extension import WrappersMP

    words = torch.cat([bench.encode(prompt)[0][0] for prompt in bench.witness.prompts[:PROMPTS]])
    patcher = bench.patcher.clone()
    if trial is not None:
        patcher.add_wrapper_with_key(WrappersMP.PREDICT_NOISE, "trial", trial.call)
    solver = bench.solver
    latents: Tensor = in_process.sample(
        patcher, [[words, {}]], bench.encode(""), torch.zeros(len(words), 4, 32, 32), seed, steps or solver.steps,
        bench.witness.guidance, solver.sampler, solver.scheduler,
    )  # fmt: skip
    return latents


def main() -> None:
    """Try all ways, and as many steps of the plain model."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    solver = next(one for one in SOLVERS if one.name == options.solver)
    bench = Bench(replace(ICONS, weights=options.weights), solver, 1)
    import comfy.samplers

    sampling = bench.patcher.get_model_object("model_sampling")
    levels = comfy.samplers.calculate_sigmas(sampling, solver.scheduler, solver.steps).tolist()
    full, other = draw(bench, None), draw(bench, None, 1001)
    extent = (full - other).square().mean((1, 2, 3)).sqrt()
    work = f"icons, {solver.name}, guidance {ICONS.guidance:g}, {PROMPTS} prompts"
    rows: list[Row] = []

    def add(name: str, latents: Tensor, computed: int) -> None:
        shares = (full - latents).square().mean((1, 2, 3)).sqrt() / extent
        quality = {"evaluations": float(computed), "share": float(shares.mean()), "share_worst": float(shares.max())}
        rows.append(Row(name, work, quality=quality))
        print(name, quality, flush=True)

    skipped = range(3, solver.steps - 1, 2)
    for steps in (10, 12, 14):
        add(f"fewer steps, {steps}", draw(bench, None, steps=steps), steps)
    orders = [("noise", 0, False)] if options.quick else [
        *((quantity, order, False) for quantity in ("noise", "picture") for order in (0, 1, 2)),
        ("v", 1, False), ("noise", 1, True),
    ]  # fmt: skip
    for quantity, order, logarithmic in orders:
        for taken_back in (False, True):
            trial = Trial(levels, skipped, quantity, order, logarithmic, taken_back)
            name = f"{('hold', 'linear', 'quadratic')[order]}, {quantity}{', over log sigma' if logarithmic else ''}"
            latents = draw(bench, trial)
            add(f"{name}{', taken back' if taken_back else ''}", latents, trial.computed)
    report(rows, "the plain model with all steps, from the same seed", options.json, _NOTES | {
        "weights": about_weights(bench.witness)})  # fmt: skip


_NOTES = {"share": "distance of the latents as a share of what another seed changes, mean; *share worst* of the worst"}


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--weights", type=Path, default=ICONS.weights)
    parser.add_argument("--solver", default=SOLVERS[0].name, choices=[solver.name for solver in SOLVERS])


if __name__ == "__main__":
    main()
