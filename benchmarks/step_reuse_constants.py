"""The constants of Reuse Steps for solvers: how far a picture really moves for the errors that its run has seen.

    python benchmarks/step_reuse_constants.py [--quick] [--threads N] [--solvers 'res_multistep, simple, 20 steps' ...]
                                              [--transformer] [--guidance SCALE] [--factor F --power P ...]

The icon model draws prompts that step_caches.py never judges. A line for each budget says how far the pictures moved
and how many stayed inside; then come the factor that makes the median right for each power, and how far apart truth
and estimate are. The constants are in optimizers/step_reuse/samplers.py; the options replace them for this measurement.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.measuring import arguments
from shared.trained import BUDGETS, ICONS, ICONS_LUMINA, SOLVERS, Bench, BenchRun, Solver, reused, rms

if TYPE_CHECKING:
    from paceline.optimizers.step_reuse.budget import Calibration

PROMPTS = (
    "blue heart shaded", "yellow star flat", "orange cat outline", "red fish shaded",
    "green house flat", "purple moon tile", "cyan key shaded", "pink anchor flat",
)  # fmt: skip
POWERS = (1.0, 1.25, 1.5, 1.75, 2.0)
FIRST_SEED = 7000
HEAD = (
    f"{'solver':38}{'budget':>7}{'evaluations':>12}{'share':>8}{'worst':>8}{'kept':>6}{'worst / budget':>15}"
    f"{'within 2x':>10}{'ratio':>7}"
)
Found = tuple[float, BenchRun]
"""How far a picture moved in truth, as a share of what another seed changes, and its run."""


def main() -> None:
    """Measure the solvers that were named."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    tables, factors = [HEAD], []
    for name in options.solvers[: 1 if options.quick else None]:
        sampler, scheduler, steps = name.removesuffix(" steps").split(", ")
        witness = ICONS_LUMINA if options.transformer else ICONS
        witness = replace(witness, prompts=PROMPTS, guidance=options.guidance or witness.guidance)
        bench = Bench(witness, Solver(sampler, scheduler, int(steps)), 1)
        bench.pairs = [(prompt, FIRST_SEED + seed) for seed in range(options.seeds) for prompt in PROMPTS]
        bench.pairs = bench.pairs[: 2 if options.quick else None]
        constants = _constants(sampler, options)
        errors: list[tuple[float, float]] = []  # the sum of errors that a run knows of, and the true distance
        for budget in BUDGETS:
            found = list(_runs(bench, budget))
            tables.append(f"{name:38}{_line(found, budget)}")
            print(tables[-1], flush=True)
            errors += [
                ((drawn.estimate / constants.factor) ** (1 / constants.power), share)
                for share, drawn in found if drawn.estimate > 0
            ]  # fmt: skip
        factors += [f"{name}: {constants}", *_factors(errors)]
    print("", *tables, "", *factors, sep="\n")


def _constants(sampler: str, options: argparse.Namespace) -> Calibration:
    """Return the constants of a sampler, after those that are to be tried were put in their place."""
    from comfy.samplers import sampler_object
    from paceline.optimizers.hosts.comfyui.step_reuse import sampler_name
    from paceline.optimizers.step_reuse.samplers import SAMPLERS, calibration_of, sampler_of

    name, given = sampler_name(sampler_object(sampler)), ("factor", "power", "margin")
    known, _ = calibration_of(name, not options.transformer)
    tried = {one: getattr(options, one) for one in given if getattr(options, one) is not None}
    constants = replace(known, **tried)
    field = "transformer_calibration" if options.transformer else "calibration"
    SAMPLERS[name] = replace(sampler_of(name), **{field: constants})
    return constants


def _runs(bench: Bench, budget: float) -> Iterator[Found]:
    for (prompt, seed), drawn in zip(bench.pairs, bench.runs(reused(budget)), strict=True):
        yield rms(drawn.latent, bench.plain(prompt, seed)) / bench.seed_distance(prompt), drawn


def _line(found: Sequence[Found], budget: float) -> str:
    moved = [share for share, _ in found]
    ratios = [share / drawn.estimate for share, drawn in found if drawn.estimate > 0] or [math.nan]
    near = statistics.fmean(0.5 <= ratio <= 2 for ratio in ratios)
    kept = statistics.fmean(share <= budget for share in moved)
    evaluations = statistics.fmean(drawn.evaluations for _, drawn in found)
    return (
        f"{budget:7g}{evaluations:12.2f}{statistics.fmean(moved):8.4f}{max(moved):8.4f}{kept:6.2f}"
        f"{max(moved) / budget:15.2f}{near:10.2f}{statistics.median(ratios):7.2f}"
    )


def _factors(errors: Sequence[tuple[float, float]]) -> Iterator[str]:
    for power in POWERS if errors else ():
        ratios = sorted(share / error**power for error, share in errors)
        middle = statistics.median(ratios)
        spread = statistics.pstdev(math.log(ratio) for ratio in ratios)
        high = ratios[math.ceil(0.95 * len(ratios)) - 1] / middle
        yield (
            f"  power {power:g}: factor {middle:.3g}, spread of the logarithm {spread:.2f}, "
            f"95 % below {high:.2f} times it"
        )


def _more(parser: argparse.ArgumentParser) -> None:
    names = [one.name for one in SOLVERS]
    parser.add_argument("--solvers", nargs="+", default=names, metavar="NAME", help="such as 'euler, normal, 30 steps'")
    parser.add_argument("--transformer", action="store_true", help="measure on the small Lumina, not on the UNet")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--guidance", type=float, help="instead of the witness's own")
    for name in ("factor", "power", "margin"):
        parser.add_argument(f"--{name}", type=float)


if __name__ == "__main__":
    main()
