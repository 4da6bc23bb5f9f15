"""Does a plan for Reuse Steps gain anything over its rule without one, on prompts that it was not found on?

    python benchmarks/step_reuse_plans.py [--quick] [--json PATH] [--threads N] [--solvers NAME ...] [--budget SHARE]

A plan is found on some prompts of the icon model, and judged on the 16 of step_reuse.py: with the budget that it was
found for, and with twice as much, from which on the node follows it in full.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import torch
from common import arguments
from record import Row, report
from step_reuse import ICONS, SOLVERS, Bench, Solver, about_weights, settings_of
from step_reuse import NOTES as ALL_NOTES
from step_reuse_constants import PROMPTS
from step_reuse_quality import fewer_steps_beside, of_node

FIRST_SEED = 7100
NOTES = {key: ALL_NOTES[key] for key in ("psnr", "share", "evaluations", "kept")}


def measure(solver: Solver, options: argparse.Namespace) -> list[Row]:
    """Find a plan and judge it."""
    bench = Bench(replace(ICONS, weights=options.icons), solver, 1)
    bench.pairs = bench.pairs[: 4 if options.quick else None]
    next(bench.node(settings_of(options.budget)))  # loads the pack
    from paceline.workbench.comfyui.calibration import calibrate
    from paceline.workbench.comfyui.sampling import SamplingJob

    def job(number: int, prompt: str) -> Any:
        latent = {"samples": torch.zeros(1, 4, 32, 32)}
        positive, negative = bench.encode(prompt), bench.encode("")
        settings = (solver.steps, ICONS.guidance, solver.sampler, solver.scheduler)
        return SamplingJob(positive, negative, latent, FIRST_SEED + number, *settings)

    with torch.inference_mode():
        found = calibrate(
            bench.patcher, [job(*one) for one in enumerate(PROMPTS[: options.prompts])], options.budget, print
        )
    print(found, flush=True)
    title = f"icons, {solver.name}, guidance {ICONS.guidance:g}"
    own = {"evaluations": found.evaluations, "share_worst": found.share}
    name = f"plan found for {options.budget:g}"
    rows = [Row(f"{name}, on the {options.prompts} prompts that it was found on", f"{title}, the plan", quality=own)]
    for budget in (options.budget, 2 * options.budget):
        work, node = f"{title}, budget {budget:g}, {len(bench.pairs)} pairs", settings_of(budget)
        planned = list(bench.node(node | {"plan": found.plan.to_json()}))
        rows += [
            Row("without a plan", work, quality=of_node(bench, list(bench.node(node)), budget)[0]),
            Row(name, work, quality=of_node(bench, planned, budget)[0]),
            Row(f"fewer steps, beside {name}", work, quality=fewer_steps_beside(bench, planned)[0]),
        ]
    return rows


def main() -> None:
    """Measure the solvers that were asked for."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    rows = [
        row for solver in SOLVERS if solver.name in (options.solvers or [SOLVERS[0].name])
        for row in measure(solver, options)
    ]  # fmt: skip
    notes = NOTES | {"icons": about_weights(replace(ICONS, weights=options.icons))}
    report(rows, "the plain model with all steps, from the same seed", options.json, notes)


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--solvers", nargs="+", choices=[solver.name for solver in SOLVERS], metavar="NAME")
    parser.add_argument("--budget", type=float, default=0.05)
    parser.add_argument("--prompts", type=int, default=4, help="that the plan is found on")
    parser.add_argument("--icons", type=type(ICONS.weights), default=ICONS.weights, help="weights of the icon model")


if __name__ == "__main__":
    main()
