"""How much sooner whole sampling ends with Reuse Steps, and what it costs where no step is left out.

    python benchmarks/step_reuse_time.py [--quick] [--json PATH] [--threads N] [--only sd15|sdxl] [--latents 64]
                                         [--rounds 3] [--solver euler]

With ``--solver`` the rows in which nothing is left out are not measured.

Guidance 7, the solvers as the node's users have them. The weights are random, so what is left out is what this network
allows, and says nothing about pictures: those are in step_reuse. *evaluations* of the network are counted beside the
time: one that is computed without its negative pass counts half.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from common import Variant, arguments, measure
from record import ROOT, Row, report
from step_reuse import NODE, settings_of
from unets import unet

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.in_process import random_conditioning, sample  # noqa: E402
from comfy_host.pack import load_nodes  # noqa: E402

PLAIN = "without Reuse Steps"
BUDGETS = {PLAIN: None, "budget 0.05": 0.05, "budget 0.15": 0.15}
NOTHING = {PLAIN: None, "again without": None, "budget 0.0001, nothing left out": 0.0001}
SOLVERS = (("dpmpp_2m", "normal", 20), ("euler", "normal", 30))
NOTES = {
    "evaluations": "of the network in one run, each with its negative pass; one without counts half",
    "weights": "random: what is left out is what this network allows; on trained ones see step_reuse",
}


def with_budget(model: Any, budget: float | None) -> Any:
    """Return ``model`` with Reuse Steps, or as it is."""
    if budget is None:
        return model
    return load_nodes()[NODE].execute(model=model, **settings_of(budget)).args[0]


class Counted:
    """Counts the pictures that a network is given; two are one evaluation with its negative pass."""

    def __init__(self, network: torch.nn.Module) -> None:
        self.pictures = 0
        network.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, network: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.pictures += len(args[0] if args else kwargs["x"])


def measured(
    layout: str, width: int, side: int, solver: tuple[str, str, int], budgets: dict[str, float | None], rounds: int
) -> Iterator[Row]:
    """Measure one solver at one size."""
    on_gpu = torch.cuda.is_available()
    model = unet(layout, width, torch.float16 if on_gpu else torch.float32, cpu=not on_gpu)
    models = {name: with_budget(model, budget) for name, budget in budgets.items()}
    positive, negative = random_conditioning(model, seed=1), random_conditioning(model, seed=2)
    sampler, scheduler, steps = solver
    counted, evaluations = Counted(model.model.diffusion_model), dict.fromkeys(budgets, 0.0)

    def run(name: str, size: int) -> None:
        counted.pictures = 0
        latent = torch.zeros(1, 4, size, size)
        sample(models[name], positive, negative, latent, 1, steps, 7.0, sampler, scheduler)
        evaluations[name] = counted.pictures / 2

    for name in budgets:  # small and quick, only so that nobody is first
        run(name, 8)
    work = f"{sampler}, {scheduler}, {steps} steps, guidance 7: {layout}, {width} channels, {side * 8} x {side * 8}"
    variants: dict[str, Variant] = {name: partial(run, name, side) for name in budgets}
    for row in measure(work, variants, PLAIN, rounds=rounds, warmups=0, memory_while_timed=True):
        row.quality = {"evaluations": evaluations[row.name]}
        yield row


def one_solver(parser: argparse.ArgumentParser) -> None:
    """Add what chooses one solver."""
    parser.add_argument("--solver", choices=[name for name, _, _ in SOLVERS], help="measure this one only")


def main() -> None:
    """Measure the solvers on both layouts, or the one that was asked for."""
    options = arguments(__doc__.splitlines()[0], only=("sd15", "sdxl"), latents=True, more=one_solver)
    width, rounds = 64 if options.quick else 320, options.rounds or 3
    rows: list[Row] = []
    with torch.inference_mode():
        for key, layout, side in (("sd15", "SD1.5", 64), ("sdxl", "SDXL", 128)):
            if options.only not in (None, key):
                continue
            for size in options.latents or [16 if options.quick else side]:
                if options.solver is None:
                    rows += measured(layout, width, size // 2, SOLVERS[0], NOTHING, rounds)
                for solver in [one for one in SOLVERS if options.solver in (None, one[0])]:
                    rows += measured(layout, width, size, solver, BUDGETS, rounds)
                    print(f"measured {rows[-1].work}", file=sys.stderr, flush=True)
    report(rows, PLAIN, options.json, NOTES)


if __name__ == "__main__":
    main()
