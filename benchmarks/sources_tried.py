"""What else could be left out of a step, and why Reuse Steps does not: some blocks alone, or no guidance at the end.

    python benchmarks/sources_tried.py [--json PATH] [--threads N] [--model NAME] [--weights PATH]
                                       [--solvers NAME ...] [--prompts N] [--budgets SHARE ...]

Three questions, on the icon model or the transformer that learned icons, in runs of one prompt each:

- *One step*: a full run in which each step is also done in each other way. How far is its prediction, in what it moves
  the final latent by (``effect``)? *Blocks*: the outer ones of a UNet or the first ones of a transformer run, and get
  what the others gave before, kept or extrapolated (partial_steps.py). *Guidance*: without the negative pass, as at
  the ends of a limited interval (arXiv 2404.07724), or with the last difference, kept or extrapolated.
- *Whole runs*: Reuse Steps' own rule with these blocks as a third way, whose error is booked, and taken back in the
  next computed step, as that of a forecast. It is given the exact errors of each way in every computed step, and the
  time of that is not counted: a UNet would have to run the blocks for it, so no real rule can do as well; a transformer
  needs its last layer alone, where no last blocks run. *Gain*: how many dB nearer than the rule without them, with as
  many evaluations (between its budgets by interpolation).
- *Limited interval*: the last steps without the negative pass, beside as many evaluations of fewer steps.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import arguments
from record import Row, report
from step_reuse import SOLVERS, WITNESSES, Bench, about_weights, in_process
from step_reuse_quality import quality
from torch import Tensor

in_process.bootstrap()
from paceline.optimizers.hosts.comfyui.model import is_unet  # noqa: E402
from paceline.optimizers.step_reuse.budget import ErrorRate, rms  # noqa: E402
from paceline.optimizers.step_reuse.history import History, Place  # noqa: E402
from paceline.optimizers.step_reuse.run import BEGINNING, WARM_UP, Decision, ReuseRun  # noqa: E402
from paceline.optimizers.step_reuse.settings import StepReuseSettings  # noqa: E402
from paceline.optimizers.step_reuse.solvers import SOLVERS as KNOWN  # noqa: E402
from partial_steps import Compute, Features, source_of  # noqa: E402

MODELS = {"icons": (WITNESSES["icons"][0], (SOLVERS[0], SOLVERS[3])), "icons-flux": WITNESSES["icons-flux"]}
FORECASTS = ("hold", "hold_noise", "linear", "linear_noise")
Step = Callable[[int, float, Tensor, Compute], Tensor]
Way = tuple[str, bool]
"""Which blocks run, and whether what the others gave is extrapolated."""


class Sampling:
    """Draws one prompt at a time, each step by a function."""

    def __init__(self, bench: Bench) -> None:
        from comfy.patcher_extension import WrappersMP

        self.bench, self.wrappers = bench, WrappersMP
        self.blocks = source_of(bench.patcher.model.diffusion_model)
        import comfy.samplers

        sampling = bench.patcher.get_model_object("model_sampling")
        solver = bench.solver
        self.levels = comfy.samplers.calculate_sigmas(sampling, solver.scheduler, solver.steps).tolist()
        self.passes: list[Tensor] = []

    def draw(self, pair: tuple[str, int], step: Step, unguided: Sequence[int] = ()) -> Tensor:
        """Return the latent. ``unguided``: numbers of the steps without the negative pass."""
        patcher, number = self.bench.patcher.clone(), [0]
        self.blocks.attach(patcher)

        def predict(executor: Any, x: Tensor, timestep: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            found = step(number[0], float(timestep[0]), x, lambda: executor(x, timestep, *args, **kwargs))
            number[0] += 1
            return found

        def passes(executor: Any, model: Any, conds: list[Any], *args: Any) -> list[Tensor]:
            if number[0] in unguided:
                return [executor(model, [conds[0], None], *args)[0]] * 2
            self.passes = executor(model, conds, *args)
            return self.passes

        patcher.add_wrapper_with_key(self.wrappers.PREDICT_NOISE, "tried", predict)
        patcher.add_wrapper_with_key(self.wrappers.CALC_COND_BATCH, "tried", passes)
        return self.bench.sample(patcher, *pair, self.bench.solver.steps)


def effect(place: Place) -> float:
    """Return how far an error of the prediction moves the final latent, about; much of early ones is forgotten."""
    return place.weight / math.sqrt(math.hypot(1.0, place.ahead))


def one_step(sampling: Sampling, pair: tuple[str, int]) -> Iterator[tuple[str, int, float]]:
    """Yield the way, the number of the step, and how far its prediction is from the network's, root mean square."""
    history = History()
    known: list[Features] = []
    differences: list[Tensor] = []
    found: list[tuple[str, int, float]] = []
    guidance = sampling.bench.witness.guidance

    def step(number: int, sigma: float, x: Tensor, compute: Compute) -> Tensor:
        place = Place(float(number), sigma, sampling.levels[number + 1])
        guesses: dict[str, Tensor] = {}
        denoised = compute()
        positive, negative = sampling.passes
        now = dict(sampling.blocks.kept)
        if len(known) == 2:
            guesses |= {name: history.forecast(name, place, x) for name in FORECASTS}
            ahead = {block: 2 * known[1][block] - known[0][block] for block in known[1]}
            for way in sampling.blocks.costs:
                guesses[f"{way}, kept"] = sampling.blocks.alone(way, known[1], compute, now)
                guesses[f"{way}, extrapolated"] = sampling.blocks.alone(way, ahead, compute, now)
            more = guidance - 1
            guesses["no guidance"] = positive
            guesses["difference, kept"] = positive + more * differences[-1]
            guesses["difference, extrapolated"] = positive + more * (2 * differences[-1] - differences[-2])
        found.extend((name, number, effect(place) * float(rms(guess - denoised))) for name, guess in guesses.items())
        known[:] = [*known[-1:], now]
        differences[:] = [*differences[-1:], positive - negative]
        history.add(place, x.clone(), denoised.clone())
        return denoised

    sampling.draw(pair, step)
    yield from found


def cost(sampling: Sampling, way: str) -> float:
    """Return the evaluations of the network that a step takes."""
    return sampling.blocks.costs.get(way.rpartition(", ")[0], 0.0 if way in FORECASTS else 0.5)


class WithBlocks(ReuseRun):
    """Reuse Steps with some blocks as a third way, for steps that may be left out but whose forecast is too coarse."""

    def offer(self, rates: dict[Way, ErrorRate]) -> None:
        """Give it the errors that each way had in the computed steps, cheapest first."""
        self.rates, self.before = rates, -1.0
        self.way: Way | None = None

    def _decide(self, place: Place) -> Decision:
        decision, self.way = super()._decide(place), None
        steps, distance = len(self.levels) - 1, place.position - self.before
        late = self._computed >= WARM_UP and BEGINNING * steps <= place.position <= steps - 3 and distance <= 4
        if decision is Decision.COMPUTE and late:
            for way, rate in self.rates.items():
                if rate.known and self._pays(rate.expected(distance), place.position / steps):
                    self.way, self.method = way, "blocks"
                    return Decision.FORECAST
        return decision


def whole_run(sampling: Sampling, pair: tuple[str, int], budget: float, ways: Sequence[str]) -> tuple[Tensor, float]:
    """Return the latent that Reuse Steps draws, also with some blocks alone, and what it took in evaluations."""
    name = sampling.bench.solver.sampler
    settings = StepReuseSettings(budget=budget, use_guidance=False)
    solver, unet = name if name in KNOWN else None, is_unet(sampling.bench.patcher)
    run, spent = WithBlocks(settings, sampling.levels, solver=solver, unet=unet), [0.0]
    costs = sampling.blocks.costs
    run.offer({(way, ahead): ErrorRate(int(ahead)) for way in sorted(ways, key=costs.get) for ahead in (False, True)})
    known: list[tuple[float, Features]] = []

    def features(position: float, ahead: bool) -> Features:
        (first, old), (second, new) = known
        weight = (position - second) / (second - first) if ahead else 0.0
        return {block: new[block] * (1 + weight) - old[block] * weight for block in new}

    def step(_: int, sigma: float, x: Tensor, compute: Compute) -> Tensor:
        place = run.place_of(sigma)
        decision = run.begin(place, x)
        run.next_slot()
        if run.way is not None:
            spent[0] += costs[run.way[0]]
            return run.end(sampling.blocks.alone(run.way[0], features(place.position, run.way[1]), compute))
        if decision is Decision.FORECAST:
            return run.end(run.forecast(0, x)[0])
        spent[0] += 1
        denoised = compute()
        now = dict(sampling.blocks.kept)
        for way, rate in run.rates.items() if len(known) == 2 else ():
            guess = sampling.blocks.alone(way[0], features(place.position, way[1]), compute, now)
            rate.test(place.position - known[-1][0], rms(guess - denoised).tolist())
        known[:] = [*known[-1:], (place.position, now)]
        run.before = place.position
        run.keep(0, x, [denoised])
        return run.end(denoised)

    return sampling.draw(pair, step), spent[0]


def rows(bench: Bench, budgets: Sequence[float]) -> Iterator[Row]:
    """Answer the three questions for one solver."""
    sampling, steps = Sampling(bench), bench.solver.steps
    work = f"{bench.witness.name}, {bench.solver.name}, guidance {bench.witness.guidance:g}, {len(bench.pairs)} prompts"
    errors: dict[str, dict[int, list[float]]] = {}
    for pair in bench.pairs:
        seeds = bench.seed_distance(pair[0])
        for way, number, error in one_step(sampling, pair):
            errors.setdefault(way, {}).setdefault(number, []).append(error / seeds)
    for way, found in errors.items():
        inner = [value for number in found if BEGINNING * steps <= number < steps - 1 for value in found[number]]
        last = found[steps - 1]
        numbers = {"evaluations": cost(sampling, way), "error": statistics.fmean(inner), "error_worst": max(inner)}
        yield Row(way, f"one step of {work}", quality=numbers | {"last_step": statistics.fmean(last)})
    yield from whole_runs(sampling, f"whole runs of {work}", budgets)
    for count in (1, 2, 4, 8):
        ends = [sampling.draw(pair, lambda *call: call[3](), range(steps - count, steps)) for pair in bench.pairs]
        spent = {"evaluations": steps - count / 2}
        numbers = _of(bench, [(latent, 0.0) for latent in ends]) | spent
        yield Row(f"last {count} steps without guidance", f"limited interval, {work}", quality=numbers)
        fewer = [(bench.plain(*pair, max(1, int(steps - count / 2))), 0.0) for pair in bench.pairs]
        spent = {"evaluations": float(int(steps - count / 2))}
        yield Row(f"fewer steps, beside last {count}", f"limited interval, {work}", quality=_of(bench, fewer) | spent)


def whole_runs(sampling: Sampling, work: str, budgets: Sequence[float]) -> Iterator[Row]:
    """Compare the rule with and without blocks, and with fewer steps."""
    bench, ways = sampling.bench, tuple(sampling.blocks.costs)
    free = tuple(way for way in ways if "last" not in way)
    sets = {"forecasts": (), "and all blocks": ways} | {f"and {way}": (way,) for way in free}
    curve: list[dict[str, float]] = []
    for name, allowed in sets.items():
        for budget in budgets:
            drawn = [whole_run(sampling, pair, budget, allowed) for pair in bench.pairs]
            spent = statistics.fmean(evaluations for _, evaluations in drawn)
            found = _of(bench, drawn) | {"evaluations": spent}
            if not allowed:
                curve.append(found)
            elif (gains := gain(found, curve)) is not None:
                found |= gains
            yield Row(f"{name}, budget {budget:g}", work, quality=found)
    for fewer in sorted({max(1, int(found["evaluations"])) for found in curve}, reverse=True):
        numbers = _of(bench, [(bench.plain(*pair, fewer), 0.0) for pair in bench.pairs])
        yield Row(f"{fewer} steps", work, quality=numbers | {"evaluations": float(fewer)})


def gain(found: dict[str, float], curve: Sequence[dict[str, float]]) -> dict[str, float] | None:
    """Return how many dB nearer than a curve at as many evaluations; None where the curve does not reach."""
    for more, less in itertools.pairwise(sorted(curve, key=lambda point: -point["evaluations"])):
        if less["evaluations"] <= found["evaluations"] <= more["evaluations"] > less["evaluations"]:
            part = (found["evaluations"] - less["evaluations"]) / (more["evaluations"] - less["evaluations"])
            names = {"gain": "psnr", "gain_worst": "psnr_worst"}
            return {key: found[of] - less[of] - part * (more[of] - less[of]) for key, of in names.items()}
    return None


def _of(bench: Bench, drawn: Sequence[tuple[Tensor, float]]) -> dict[str, float]:
    return quality(bench, (latent for latent, _ in drawn))[0]


def main() -> None:
    """Answer for each solver that was asked for."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    found: list[Row] = []
    model, solvers = MODELS[options.model]
    model = replace(model, weights=options.weights or model.weights)
    for solver in (solver for solver in solvers if solver.name in (options.solvers or [one.name for one in solvers])):
        bench = Bench(model, solver, 1)
        bench.pairs = bench.pairs[: options.prompts]
        for row in rows(bench, options.budgets):
            found.append(row)
            print(row.work, row.name, {key: round(value, 4) for key, value in row.quality.items()}, flush=True)
    notes = _NOTES | {"weights": about_weights(model)}
    report(found, "the plain model with all steps, from the same seed", options.json, notes)


_NOTES = {
    "error": "of one prediction, as the share of a seed change by which it moves the final latent; mean and worst of "
    "all steps but the first fifth and the last; *last step*: mean there",
    "evaluations": "of the network; blocks alone by their share of its operations",
    "psnr": "dB, of the pictures; *share*: distance of the latents as a share of what another seed changes",
}


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=tuple(MODELS), default="icons")
    parser.add_argument("--weights", type=Path)
    names = [solver.name for _, solvers in MODELS.values() for solver in solvers]
    parser.add_argument("--solvers", nargs="+", choices=names, metavar="NAME")
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.05, 0.15], metavar="SHARE")
    parser.add_argument("--prompts", type=int, default=6)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
