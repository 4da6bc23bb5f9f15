"""The constants of Reuse Steps for a solver: how far a picture really moves for the errors that its run has seen.

    python benchmarks/step_reuse_constants.py 'res_multistep, simple, 20 steps' [--factor F --power P --margin M]

The icon model draws prompts that step_reuse.py never judges. A line for each budget says how far the pictures moved and
how many stayed inside; then come the factor that makes the median right for each power, and how far apart truth and
estimate are. The constants are in optimizers/step_reuse/budget.py. The options are constants to try in their place.
"""

from __future__ import annotations

import argparse
import math
import statistics
from dataclasses import replace

import torch
from step_reuse import BUDGETS, ICONS, ICONS_FLUX, Bench, Solver, settings_of
from step_reuse_quality import rms

PROMPTS = (
    "blue heart shaded", "yellow star flat", "orange cat outline", "red fish shaded",
    "green house flat", "purple moon tile", "cyan key shaded", "pink anchor flat",
)  # fmt: skip
POWERS = (1.0, 1.25, 1.5, 1.75, 2.0)
FIRST_SEED = 7000


def main() -> None:
    """Measure one solver."""
    options = _parser().parse_args()
    torch.set_num_threads(options.threads)
    sampler, scheduler, steps = options.solver.removesuffix(" steps").split(", ")
    witness = ICONS_FLUX if options.transformer else ICONS
    bench = Bench(replace(witness, prompts=PROMPTS), Solver(sampler, scheduler, int(steps)), 1)
    bench.pairs = [(prompt, FIRST_SEED + seed) for seed in range(options.seeds) for prompt in PROMPTS]
    from comfy.samplers import sampler_object
    from paceline.optimizers.hosts.comfyui.step_reuse import sampler_name
    from paceline.optimizers.step_reuse import budget as module

    name = sampler_name(sampler_object(sampler))
    asked = (options.factor, options.power, options.margin)
    constants, _ = module.calibration_of(name, not options.transformer)
    if any(value is not None for value in asked):
        known = (constants.factor, constants.power, constants.margin)
        constants = module.Calibration(
            *(new if new is not None else old for new, old in zip(asked, known, strict=True))
        )
    (module.TRANSFORMER_CALIBRATIONS if options.transformer else module.CALIBRATIONS)[name] = constants
    found: list[tuple[float, float]] = []  # the sum of errors that the run knows of, and the true distance
    for budget in BUDGETS:
        rows = list(zip(bench.pairs, bench.node(settings_of(budget)), strict=True))
        moved = []
        for (prompt, seed), drawn in rows:
            share = rms(drawn.latent, bench.plain(prompt, seed)) / bench.seed_distance(prompt)
            moved.append(share)
            if drawn.estimate > 0:
                found.append(((drawn.estimate / constants.factor) ** (1 / constants.power), share))
        ratios = [share / drawn.estimate for share, (_, drawn) in zip(moved, rows, strict=True) if drawn.estimate > 0]
        near = statistics.fmean(0.5 <= ratio <= 2 for ratio in ratios) if ratios else math.nan
        kept = statistics.fmean(share <= budget for share in moved)
        print(
            f"{options.solver}, {name} {constants}, budget {budget:g}: "
            f"{statistics.fmean(drawn.evaluations for _, drawn in rows):.2f} evaluations, "
            f"share {statistics.fmean(moved):.4f}, worst {max(moved):.4f}, "
            f"kept {kept:.2f}, largest / budget {max(moved) / budget:.2f}, within a factor of 2 {near:.2f}, "
            f"ratio {statistics.median(ratios) if ratios else math.nan:.2f}",
            flush=True,
        )
    for power in POWERS if found else ():
        ratios = sorted(share / errors**power for errors, share in found)
        middle = statistics.median(ratios)
        spread = statistics.pstdev(math.log(ratio) for ratio in ratios)
        high = ratios[math.ceil(0.95 * len(ratios)) - 1] / middle
        print(
            f"  power {power:g}: factor {middle:.3g}, spread of the logarithm {spread:.2f}, "
            f"95 % below {high:.2f} times it"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solver", help="sampler, scheduler, steps")
    parser.add_argument("--transformer", action="store_true", help="measure on the small Flux, not on the UNet")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    for name in ("factor", "power", "margin"):
        parser.add_argument(f"--{name}", type=float)
    return parser


if __name__ == "__main__":
    main()
