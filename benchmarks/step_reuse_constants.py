"""The constants of Reuse Steps for solvers: how far a picture really moves for the errors that its run has seen.

    python benchmarks/step_reuse_constants.py [--quick] [--json PATH] [--threads N] [--only unet|transformer|video]
        [--solvers 'res_multistep, simple, 20 steps' ...] [--guidance SCALE ...] [--shifts SHIFT ...] [--pairs N]
        [--budgets SHARE ...] [--held-out]

The icons' models draw prompts that step_caches.py never judges; with ``--held-out`` those that it does, from other
seeds. A row for each budget says how far the pictures moved, how many stayed inside of it, and how the node's estimate
did; then come the factor that makes the median right for each power, and how far apart truth and estimate are. The
constants are in optimizers/models/samplers.py.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING

from shared.distances import NOTES, of_runs
from shared.measuring import arguments
from shared.nodes import reused
from shared.record import Row, collected, report
from shared.trained import ICONS, ICONS_LUMINA, ICONS_VIDEO, SOLVERS, Bench, Solver, Witness, about_weights, in_process

if TYPE_CHECKING:
    from paceline.optimizers.models.samplers import Calibration

PROMPTS = (
    "blue heart shaded", "yellow star flat", "orange cat outline", "red fish shaded",
    "green house flat", "purple moon tile", "cyan key shaded", "pink anchor flat",
)  # fmt: skip
OF_VIDEOS = (
    "blue heart turn", "yellow star right", "pink house left", "red fish up",
    "purple moon grow", "green umbrella down", "orange key left", "cyan cloud turn",
)  # fmt: skip
WITNESSES = {
    "unet": (ICONS, PROMPTS),
    "transformer": (ICONS_LUMINA, PROMPTS),
    "video": (ICONS_VIDEO, OF_VIDEOS),
}
FLOW_SAMPLERS = ("euler", "dpmpp_2m", "res_multistep", "er_sde", "uni_pc")
FLOW_STEPS = (20, 25, 50)
POWERS = (1.0, 1.25, 1.5, 1.75, 2.0)
FIRST_SEED = 7000
Errors = list[tuple[float, float]]
"""The sum of errors that a run knows of, and how far the picture moved in truth, as a share of a seed change."""


def main() -> None:
    """Measure the solvers that were named, on the models that were."""
    options = arguments(__doc__.splitlines()[0], tuple(WITNESSES), more=_more)
    in_process.bootstrap()
    notes = {key: NOTES[key] for key in ("kept", "share", "estimate", "ratio")}
    notes["shift"] = "of the schedule, where it is not the transformer's own, which is 2"
    rows: list[Row] = []
    for only, (witness, prompts) in WITNESSES.items():
        if options.only in (None, only):
            judged = replace(witness, prompts=witness.prompts if options.held_out else prompts)
            rows += collected(_measure(judged, options))
            notes[witness.name] = about_weights(witness)
    report(rows, "the plain model with all steps, from the same seed", options.json, notes)


def _measure(witness: Witness, options: argparse.Namespace) -> Iterator[Row]:
    flow = [f"{sampler}, simple, {steps} steps" for sampler in FLOW_SAMPLERS for steps in FLOW_STEPS]
    names = options.solvers or ([solver.name for solver in SOLVERS] if witness.weights == ICONS.weights else flow)
    asked = cycle((prompt, FIRST_SEED + number) for number in range(2) for prompt in witness.prompts)
    count = 2 if options.quick else options.pairs or 2 * len(witness.prompts)
    for name in names[: 1 if options.quick else None]:
        sampler, scheduler, steps = name.removesuffix(" steps").split(", ")
        constants, errors = _constants(sampler), []
        for guidance in options.guidance or [witness.guidance]:
            for shift in options.shifts:
                model = replace(witness, guidance=guidance, shift=shift)
                bench = Bench(model, Solver(sampler, scheduler, int(steps)))
                bench.pairs = list(islice(asked, count))
                for budget in options.budgets:
                    numbers, found = of_runs(bench, list(bench.runs(reused(budget))), budget)
                    pairs_of = zip(found["estimate"], found["share"], strict=True)
                    errors += [(_errors(guess, constants), share) for guess, share in pairs_of if guess > 0]
                    yield Row(f"Reuse Steps {budget:g}", bench.work, quality=numbers)
        print(f"{name}: {constants}", *_factors(errors), sep="\n", flush=True)


def _constants(sampler: str) -> Calibration:
    from comfy.samplers import sampler_object
    from paceline.optimizers.in_comfyui.comfy_step_reuse import sampler_name
    from paceline.optimizers.models.samplers import calibration_of

    return calibration_of(sampler_name(sampler_object(sampler)), flow=False)[0]


def _errors(estimate: float, constants: Calibration) -> float:
    if constants.shown is not None:
        return estimate / constants.shown
    return float((estimate / constants.factor) ** (1 / constants.power))


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
    parser.add_argument("--solvers", nargs="+", metavar="NAME", help="such as 'euler, normal, 30 steps'")
    parser.add_argument("--guidance", nargs="+", type=float, metavar="SCALE", help="instead of the model's own")
    parser.add_argument("--shifts", nargs="+", type=float, default=[None], metavar="SHIFT", help="likewise")
    parser.add_argument("--budgets", nargs="+", type=float, default=(0.05, 0.15), metavar="SHARE")
    parser.add_argument("--pairs", type=int, help="of prompt and seed: so many for each row, by turns; all without")
    parser.add_argument("--held-out", action="store_true", help="draw the prompts that the benchmarks judge")


if __name__ == "__main__":
    main()
