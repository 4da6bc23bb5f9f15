"""What else could be left out of a step, and why Reuse Steps does not: outer blocks alone, or no guidance at the end.

    python benchmarks/sources_tried.py [--json PATH] [--threads N] [--weights PATH] [--solvers NAME ...] [--prompts N]

Three questions, on the icon model, in runs of one prompt each:

- *One step*: a full run in which each step is also done in each other way. How far is its prediction, in what it moves
  the final latent by (``effect``)? *Outer blocks*: DeepCache (arXiv 2312.00858) runs the outermost blocks and
  gives them what the deep ones gave before, kept or extrapolated. *Guidance*: without the negative pass, as at the ends
  of a limited interval (arXiv 2404.07724), or with the last difference, kept or extrapolated.
- *Whole runs*: Reuse Steps' own rule with outer blocks as a third way. It is given the exact errors of each way in
  every computed step, and the time of that is not counted: no real rule can do as well.
- *Limited interval*: the last steps without the negative pass, beside as many evaluations of fewer steps.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import arguments
from record import Row, report
from step_reuse import ICONS, SOLVERS, Bench, about_weights, in_process, quality
from torch import Tensor

in_process.bootstrap()
from paceline.core.shadow import Shadows  # noqa: E402
from paceline.optimizers.step_reuse.budget import ErrorRate, rms  # noqa: E402
from paceline.optimizers.step_reuse.history import History, Place  # noqa: E402
from paceline.optimizers.step_reuse.run import BEGINNING, WARM_UP, Decision, ReuseRun  # noqa: E402
from paceline.optimizers.step_reuse.settings import StepReuseSettings  # noqa: E402
from paceline.optimizers.step_reuse.solvers import SOLVERS as KNOWN  # noqa: E402

COSTS = {1: 0.05, 2: 0.28, 3: 0.43}
"""Share of the icon model's operations in its outermost blocks, by how many run on each side.

Of SD1.5 at 512 x 512: 0.08, 0.22, 0.38. Of SDXL at 1024 x 1024: 0.01, 0.04, 0.07; 6 of its 9 blocks: 0.31.
"""

FORECASTS = ("hold", "hold_noise", "linear", "linear_noise")
Compute = Callable[[], Tensor]
Step = Callable[[int, float, Tensor, Compute], Tensor]
Features = dict[int, Tensor]


class Outer:
    """Runs the outermost blocks of a UNet of ComfyUI's alone. ``kept``: what each output block gave last, by number."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self.kept: Features = {}
        for number, block in enumerate(network.output_blocks):
            block[-1].register_forward_hook(lambda *call, number=number: self.kept.__setitem__(number, call[2]))

    def alone(self, count: int, features: Features, compute: Compute) -> Tensor:
        """Return what ``compute`` gives with ``count`` blocks on each side, and ``features`` in place of the rest."""
        network, kept, blocks = self._network, dict(self.kept), len(self._network.output_blocks)
        with Shadows() as shadows:
            for block in (*network.input_blocks[count:], network.middle_block, *network.output_blocks[:-count]):
                for layer in block:
                    shadows.put(layer, "forward", _through)
            last = network.output_blocks[blocks - count - 1][-1]
            shadows.put(last, "forward", lambda *_, **__: features[blocks - count - 1])
            self._skip = blocks - count
            found = compute()
        self._skip, self.kept = 0, kept
        return found

    _skip = 0

    def patch(self, h: Tensor, skip: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Give blocks that do not run no skip connection: ComfyUI's ``output_block_patch``."""
        return (h, None) if options["block"][1] < self._skip else (h, skip)


def _through(x: Tensor, *_: object, **__: object) -> Tensor:
    return x


class Sampling:
    """Draws one prompt at a time, each step by a function."""

    def __init__(self, bench: Bench) -> None:
        from comfy.patcher_extension import WrappersMP

        self.bench, self.wrappers = bench, WrappersMP
        self.outer = Outer(bench.patcher.model.diffusion_model)
        import comfy.samplers

        sampling = bench.patcher.get_model_object("model_sampling")
        solver = bench.solver
        self.levels = comfy.samplers.calculate_sigmas(sampling, solver.scheduler, solver.steps).tolist()
        self.passes: list[Tensor] = []

    def draw(self, pair: tuple[str, int], step: Step, unguided: Sequence[int] = ()) -> Tensor:
        """Return the latent. ``unguided``: numbers of the steps without the negative pass."""
        patcher, number = self.bench.patcher.clone(), [0]
        patcher.set_model_output_block_patch(self.outer.patch)

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
        if len(known) == 2:
            guesses |= {name: history.forecast(name, place, x) for name in FORECASTS}
            ahead = {block: 2 * known[1][block] - known[0][block] for block in known[1]}
            for count in COSTS:
                guesses[f"outer blocks, {count}, kept"] = sampling.outer.alone(count, known[1], compute)
                guesses[f"outer blocks, {count}, extrapolated"] = sampling.outer.alone(count, ahead, compute)
        denoised = compute()
        positive, negative = sampling.passes
        if len(known) == 2:
            more = guidance - 1
            guesses["no guidance"] = positive
            guesses["difference, kept"] = positive + more * differences[-1]
            guesses["difference, extrapolated"] = positive + more * (2 * differences[-1] - differences[-2])
        found.extend((name, number, effect(place) * float(rms(guess - denoised))) for name, guess in guesses.items())
        known[:] = [*known[-1:], dict(sampling.outer.kept)]
        differences[:] = [*differences[-1:], positive - negative]
        history.add(place, x.clone(), denoised.clone())
        return denoised

    sampling.draw(pair, step)
    yield from found


def cost(way: str) -> float:
    """Return the evaluations of the network that a step takes."""
    if way.startswith("outer"):
        return COSTS[int(way.split(", ")[1])]
    return 0.0 if way in FORECASTS else 0.5


class WithOuter(ReuseRun):
    """Reuse Steps with outer blocks as a third way, for steps that may be left out but whose forecast is too coarse."""

    def offer(self, rates: dict[tuple[int, bool], ErrorRate]) -> None:
        """Give it the errors that each number of blocks, kept or extrapolated, had in the computed steps."""
        self.rates, self.way, self.before = rates, (0, False), -1.0

    def _decide(self, place: Place) -> Decision:
        decision = super()._decide(place)
        steps, distance = len(self.levels) - 1, place.position - self.before
        late = self._computed >= WARM_UP and BEGINNING * steps <= place.position and distance <= 4
        if decision is Decision.COMPUTE and late:
            for way, rate in sorted(self.rates.items()):
                self.way = way
                if rate.known and self._pays(rate.expected(distance), place.position / steps, for_good=True):
                    return Decision.GUIDANCE
        return decision


def whole_run(sampling: Sampling, pair: tuple[str, int], budget: float, counts: Sequence[int]) -> tuple[Tensor, float]:
    """Return the latent that Reuse Steps draws, also with so many outer blocks, and what it took in evaluations."""
    name = sampling.bench.solver.sampler
    settings = StepReuseSettings(budget=budget, use_guidance=False)
    run, spent = WithOuter(settings, sampling.levels, solver=name if name in KNOWN else None), [0.0]
    run.offer({(count, ahead): ErrorRate(int(ahead)) for count in counts for ahead in (False, True)})
    known: list[tuple[float, Features]] = []

    def features(position: float, ahead: bool) -> Features:
        (first, old), (second, new) = known
        weight = (position - second) / (second - first) if ahead else 0.0
        return {block: new[block] * (1 + weight) - old[block] * weight for block in new}

    def step(_: int, sigma: float, x: Tensor, compute: Compute) -> Tensor:
        place = run.place_of(sigma)
        decision = run.begin(place, x)
        run.next_slot()
        if decision is Decision.FORECAST:
            return run.end(run.forecast(0, x)[0])
        if decision is Decision.GUIDANCE:
            spent[0] += COSTS[run.way[0]]
            denoised = sampling.outer.alone(run.way[0], features(place.position, run.way[1]), compute)
        else:
            spent[0] += 1
            guesses = {
                way: sampling.outer.alone(way[0], features(place.position, way[1]), compute)
                for way in (run.rates if len(known) == 2 else ())
            }
            denoised = compute()
            for way, guess in guesses.items():
                run.rates[way].test(place.position - known[-1][0], rms(guess - denoised).tolist())
            known[:] = [*known[-1:], (place.position, dict(sampling.outer.kept))]
            run.before = place.position
        run.keep(0, x, [denoised])
        return run.end(denoised)

    return sampling.draw(pair, step), spent[0]


def rows(bench: Bench) -> Iterator[Row]:
    """Answer the three questions for one solver."""
    sampling, steps = Sampling(bench), bench.solver.steps
    work = f"icons, {bench.solver.name}, guidance {bench.witness.guidance:g}, {len(bench.pairs)} prompts"
    errors: dict[str, dict[int, list[float]]] = {}
    for pair in bench.pairs:
        seeds = bench.seed_distance(pair[0])
        for way, number, error in one_step(sampling, pair):
            errors.setdefault(way, {}).setdefault(number, []).append(error / seeds)
    for way, found in errors.items():
        inner = [value for number in found if BEGINNING * steps <= number < steps - 1 for value in found[number]]
        last = found[steps - 1]
        numbers = {"evaluations": cost(way), "error": statistics.fmean(inner), "error_worst": max(inner)}
        yield Row(way, f"one step of {work}", quality=numbers | {"last_step": statistics.fmean(last)})
    for budget in (0.05, 0.15):
        for name, counts in (("forecasts", ()), ("and outer blocks", tuple(COSTS)), ("and 2 outer blocks", (2,))):
            drawn = [whole_run(sampling, pair, budget, counts) for pair in bench.pairs]
            spent = {"evaluations": statistics.fmean(evaluations for _, evaluations in drawn)}
            yield Row(f"{name}, budget {budget:g}", f"whole runs of {work}", quality=_of(bench, drawn) | spent)
    for count in (1, 2, 4, 8):
        ends = [sampling.draw(pair, lambda *call: call[3](), range(steps - count, steps)) for pair in bench.pairs]
        spent = {"evaluations": steps - count / 2}
        numbers = _of(bench, [(latent, 0.0) for latent in ends]) | spent
        yield Row(f"last {count} steps without guidance", f"limited interval, {work}", quality=numbers)
        fewer = [(bench.plain(*pair, max(1, int(steps - count / 2))), 0.0) for pair in bench.pairs]
        spent = {"evaluations": float(int(steps - count / 2))}
        yield Row(f"fewer steps, beside last {count}", f"limited interval, {work}", quality=_of(bench, fewer) | spent)


def _of(bench: Bench, drawn: Sequence[tuple[Tensor, float]]) -> dict[str, float]:
    return quality(bench, (latent for latent, _ in drawn))[0]


def main() -> None:
    """Answer for each solver that was asked for."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    found: list[Row] = []
    for solver in (solver for solver in SOLVERS if solver.name in options.solvers):
        bench = Bench(replace(ICONS, weights=options.weights), solver, 1)
        bench.pairs = bench.pairs[: options.prompts]
        for row in rows(bench):
            found.append(row)
            print(row.work, row.name, {key: round(value, 4) for key, value in row.quality.items()}, flush=True)
    notes = _NOTES | {"weights": about_weights(bench.witness)}
    report(found, "the plain model with all steps, from the same seed", options.json, notes)


_NOTES = {
    "error": "of one prediction, as the share of a seed change by which it moves the final latent; mean and worst of "
    "all steps but the first fifth and the last; *last step*: mean there",
    "evaluations": "of the network; outer blocks by their share of its operations",
    "psnr": "dB, of the pictures; *share*: distance of the latents as a share of what another seed changes",
}


def _more(parser: argparse.ArgumentParser) -> None:
    names = [solver.name for solver in SOLVERS]
    parser.add_argument("--weights", type=Path, default=ICONS.weights)
    parser.add_argument("--solvers", nargs="+", default=[names[0], names[3]], choices=names, metavar="NAME")
    parser.add_argument("--prompts", type=int, default=6)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
