"""Evaluates kept points of a run with other MODELs, in turn with the plain one: seconds, and errors of predictions.

The guider of the run samples once more, with a sampler that only evaluates these points. So ControlNets, masks, hooks,
ranges of conditionings and guiders are what they were.

A technique that keeps something of whole steps for later ones (``residual`` of Apply ToMe) is evaluated at pairs of
points, about as many steps apart as its steps are on average: whole at the first, with what is kept at the second.

A few pairs of evaluations settle a candidate, and one or two settle none. So where there is not enough work for all,
the first ones are tried until they are clear, and the others are not.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...core.devices import synchronize
from ...core.errors import InvalidSetting, PacelineError
from ...core.technique import WholeSteps
from ...optimizers.hosts.comfyui.evaluations import WHOLE
from ...optimizers.hosts.comfyui.model import stack_of
from ...optimizers.hosts.comfyui.protocols import ModelPatcher
from ...optimizers.hosts.comfyui.stack import run_data
from ..expectation.expect import Probed
from ..expectation.sampling import Sampling
from ..measurement.speedup import interleaved, measure_speedup
from .observer import Again

TIMED = 4
"""Evaluations of a candidate in each round, after one that is not timed."""

SPARE = 30.0
"""Seconds that a probe may always take, for two rounds of all: the work of a short run is not enough for that."""

Change = Callable[[ModelPatcher], ModelPatcher]
Say = Callable[[int, int, str], None]
Point = tuple[int, float, Tensor]
"""The number of an evaluation, its noise level and its input."""


@dataclass
class _Side:
    """What was evaluated with one MODEL: seconds by round and place among the points.

    ``keeps``: whether its first evaluation serves all others; ``whole``: which of its steps serve later ones.
    ``warm``: whether it was evaluated before, so that it is compiled and its kernels are chosen.
    """

    model: ModelPatcher
    keeps: bool = False
    whole: WholeSteps | None = None
    warm: bool = False
    seconds: dict[tuple[int, int], float] = field(default_factory=dict)
    outputs: dict[int, Tensor] = field(default_factory=dict)

    @property
    def untimed(self) -> int:
        """How many evaluations its next round begins with that are not timed."""
        return int(self.keeps or not self.warm)


def probe(
    sampling: Sampling,
    candidates: Mapping[str, Change],
    say: Say = lambda done, total, name: None,
    spare: float = SPARE,
    found: list[Probed] | None = None,
    keeping: Collection[str] = (),
) -> list[Probed]:
    """Evaluate the candidates; return what each was worth, in their order.

    The work is at most the run's, or what ``spare`` seconds allow, or what the first candidate takes: the largest of
    them. ``found`` is filled as it goes. What ``say`` raises, and ComfyUI's cancel, end it. Candidates
    ``keeping`` in a run's first evaluation what all others use begin each round with the first point kept, which is not
    timed.

    `InvalidSetting` if nothing was kept of the run.
    """
    again: Again | None = sampling.again
    if again is None or not again.points:
        raise InvalidSetting("Nothing was kept of this run to evaluate again.", "Run the workflow once more.")
    results = [] if found is None else found
    plain = _Side(sampling.model)
    sides, refused = {"": plain}, dict[str, str]()
    for name, change in candidates.items():
        try:
            model = change(sampling.model)
            kept = [one.policy.whole_steps(sampling.levels) for one in stack_of(model).techniques]
            sides[name] = _Side(model, name in keeping, next((one for one in kept if one is not None), None))
        except PacelineError as error:
            refused[name] = str(error)
    each = sampling.steps / max(1, sampling.evaluations)
    both, all_twice = 2 * (1 + TIMED), (1 + 2 * TIMED) * len(sides)
    allowed = max(both, sampling.evaluations, min(all_twice, int(spare / max(each, 1e-6))))
    points = _points(again.points, sampling, sides.values())

    def work(names: Sequence[str], timed: int) -> int:
        return sum(timed + sides[name].untimed for name in ("", *names))

    done, number, alive, waiting = 0, 0, list[str](), [name for name in sides if name]
    while True:
        results[:] = [_judged(name, sides, refused, sampling) for name in candidates]
        alive = [one.name for one in results if one.name in alive and not one.clear and not one.why_not]
        while waiting and done + work([*alive, waiting[0]], TIMED) <= allowed:
            alive.append(waiting.pop(0))
        if not alive or done + work(alive, len(points)) > allowed:
            break
        for name in interleaved(["", *alive], number):
            say(done, allowed, name)
            done += len(points) + sides[name].untimed
            try:
                _evaluate(again, sides[name], points, number)
            except RuntimeError as error:  # a kernel's refusal, or memory; ComfyUI's cancel is none
                if not name:
                    raise
                refused[name] = str(error)
        number += 1
    say(allowed, allowed, "")
    return results


def _points(kept: Sequence[Point], sampling: Sampling, sides: Iterable[_Side]) -> list[Point]:
    """Return ``TIMED`` of the kept points or fewer, spread over the run: pairs where a side has whole steps."""
    ages = [side.whole.age for side in sides if side.whole is not None]
    apart = max(1.0, max(ages, default=0.0) * sampling.evaluations / max(1, len(sampling.levels) - 1))
    chosen: list[Point] = []
    parts, count = TIMED // 2 if ages else 0, min(TIMED, len(kept))
    for part in range(parts):
        firsts = kept[part * len(kept) // parts : (part + 1) * len(kept) // parts]
        pairs = [(one, later) for one in firsts for later in kept if later[0] > one[0]]
        pairs.sort(key=lambda pair: abs(math.log((pair[1][0] - pair[0][0]) / apart)))
        chosen += [point for pair in pairs[:1] for point in pair]
    return chosen or [kept[int((number + 0.5) * len(kept) / count)] for number in range(count)]


def _evaluate(again: Again, side: _Side, points: Sequence[Point], number: int) -> None:
    import comfy.model_management
    import comfy.samplers

    def evaluate(denoiser: Any, noise: Tensor, sigmas: Tensor, extra_args: Any = None, **__: object) -> Tensor:
        store = run_data(extra_args["model_options"])
        untimed = side.untimed
        for place, (_, sigma, kept) in enumerate([*again.points[:untimed], *points], -untimed):
            comfy.model_management.throw_exception_if_processing_interrupted()
            x = kept.to(noise.device)
            store[WHOLE] = place < 0 or place % 2 == 0
            level = torch.full((len(x),), sigma, device=x.device)
            synchronize(x.device)
            started = time.perf_counter()
            output = denoiser(x, level, **extra_args)
            synchronize(x.device)
            seconds = time.perf_counter() - started
            side.warm = True
            if place >= 0:
                side.seconds[number, place] = seconds
                side.outputs.setdefault(place, output.cpu())
        return noise

    again.sample(comfy.samplers.KSAMPLER(evaluate), again.sigmas, side.model)


def _judged(name: str, sides: Mapping[str, _Side], refused: Mapping[str, str], sampling: Sampling) -> Probed:
    if name in refused:
        return Probed(name, why_not=refused[name])
    plain, side = sides[""], sides[name]
    places = sorted(plain.seconds.keys() & side.seconds.keys())
    if not places:
        return Probed(name)
    pairs = [(plain.seconds[place], side.seconds[place]) for place in places]
    judged, share = side.outputs.keys() & plain.outputs.keys(), 1.0
    if side.whole is not None:
        # Of a run's steps so many cost what the first points of the pairs cost, and are exact; the others are judged.
        costs = [after / before for (_, place), (before, after) in zip(places, pairs, strict=True) if place % 2 == 0]
        whole, share = side.whole.share, 1 - side.whole.share
        seconds = [pair for (_, place), pair in zip(places, pairs, strict=True) if place % 2]
        pairs = [(before, whole * statistics.median(costs) * before + share * after) for before, after in seconds]
        judged = {place for place in judged if place % 2}
    speedup = measure_speedup([before for before, _ in pairs], [after for _, after in pairs])
    errors = [
        sampling.share(sampling.sketch.of(side.outputs[place]) - sampling.sketch.of(plain.outputs[place]))
        for place in judged
    ]
    low, ratio, high = (
        _of_all(times, sampling.evaluations) if side.keeps else times
        for times in (speedup.low, speedup.ratio, min(speedup.high, 1000.0))
    )
    return Probed(
        name,
        (low, ratio, high),
        speedup.clear,
        share * math.sqrt(statistics.fmean(error**2 for error in errors)),
        side.whole is not None,
        len(errors),
    )


def _of_all(times: float, evaluations: int) -> float:
    """Return how many times faster all evaluations are if the first takes as long as before."""
    return evaluations / (1 + (evaluations - 1) / max(times, 0.001))
