"""Evaluates kept points of a run with other MODELs, in turn with the plain one: seconds, and errors of predictions.

The guider of the run samples once more, with a sampler that only evaluates these points. So ControlNets, masks, hooks,
ranges of conditionings and guiders are what they were.

A technique that keeps something of whole steps for later ones (``residual`` of Apply ToMe) is evaluated at pairs of
points, about as many steps apart as its steps are on average: whole at the first, with what is kept at the second.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
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
from ...optimizers.hosts.comfyui.stack import RUN
from ..expectation.sampling import Sampling
from ..measurement.speedup import Speedup, interleaved, measure_speedup
from .observer import Again

FEWEST, MOST = 1, 4
"""Points at which each candidate is evaluated in the first round, as many as the work allows."""

Change = Callable[[ModelPatcher], ModelPatcher]
Say = Callable[[int, int, str], None]
Point = tuple[int, float, Tensor]
"""The number of an evaluation, its noise level and its input."""


@dataclass(frozen=True)
class Probed:
    """What one candidate was worth in single evaluations.

    Attributes:
        speedup: how many times faster than the plain one, ``[low, ratio, high]``; [1, 1, 1] where it was not evaluated.
        clear: whether more rounds would tell nothing new.
        error: root mean square over the points of the prediction's error, as a share of what another seed changes; it
            is 0 in whole steps.
        kept: whether it is of what is kept from whole steps.
        points: how many different evaluations that is of.
        why_not: why it was not evaluated; empty if it was.
    """

    name: str
    speedup: tuple[float, float, float] = (1.0, 1.0, 1.0)
    clear: bool = False
    error: float = 0.0
    kept: bool = False
    points: int = 0
    why_not: str = ""

    @property
    def unclear(self) -> bool:
        """Whether it may be faster, and was not evaluated often enough to say so."""
        return not self.why_not and not self.clear and self.speedup[0] <= 1 < self.speedup[2]


@dataclass
class _Side:
    """What was evaluated with one MODEL: seconds by round and place among the points.

    ``keeps``: whether its first evaluation serves all others; ``whole``: which of its steps serve later ones.
    """

    model: ModelPatcher
    keeps: bool = False
    whole: WholeSteps | None = None
    first: float | None = None
    seconds: dict[tuple[int, int], float] = field(default_factory=dict)
    outputs: dict[int, Tensor] = field(default_factory=dict)


def probe(
    sampling: Sampling,
    candidates: Mapping[str, Change],
    say: Say = lambda done, total, name: None,
    most: float = 1.0,
    found: list[Probed] | None = None,
    keeping: Collection[str] = (),
) -> list[Probed]:
    """Evaluate the candidates; return what each was worth, in their order.

    ``most`` is the work at most, as a share of the run's; one point of all is evaluated even where that is more.
    ``found`` is filled as it goes. What ``say`` raises, and ComfyUI's cancel, end it. Candidates ``keeping`` in a run's
    first evaluation what all others use begin each round with the first point kept, which is not timed.

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
    more = sum(side.keeps for side in sides.values())
    allowed = max(len(sides) + more, int(most * sampling.evaluations))
    count = max(FEWEST, min(MOST, len(again.points), (allowed - more) // len(sides)))
    ages = [side.whole.age for side in sides.values() if side.whole is not None]
    each = sampling.evaluations / max(1, len(sampling.levels) - 1)
    points = _pairs(again.points, max(ages) * each, count // 2) if ages else []
    points = points or [again.points[int((number + 0.5) * len(again.points) / count)] for number in range(count)]
    count = len(points)
    done, number, alive = 0, 0, list(sides)
    while len(alive) > 1 and (number == 0 or done + sum(count + sides[name].keeps for name in alive) <= allowed):
        for name in interleaved(alive, number):
            say(done, allowed, name)
            try:
                _evaluate(again, sides[name], points, number)
            except RuntimeError as error:  # a kernel's refusal, or memory; ComfyUI's cancel is none
                if not name:
                    raise
                refused[name] = str(error)
            done += count + sides[name].keeps
        results[:] = [_judged(name, sides, refused, sampling) for name in candidates]
        unclear = {one.name for one in results if not one.clear and not one.why_not}
        alive = [name for name in alive if not name or name in unclear]
        number += 1
    results[:] = [_judged(name, sides, refused, sampling) for name in candidates]
    say(allowed, allowed, "")
    return results


def _pairs(points: Sequence[Point], apart: float, count: int) -> list[Point]:
    """Return the points of some pairs, one after the other: about so many evaluations apart, spread over the run."""
    chosen: list[Point] = []
    for part in range(count):
        firsts = points[part * len(points) // count : (part + 1) * len(points) // count]
        pairs = [(one, later) for one in firsts for later in points if later[0] > one[0]]
        pairs.sort(key=lambda pair: abs(math.log((pair[1][0] - pair[0][0]) / max(apart, 1))))
        chosen += [point for pair in pairs[:1] for point in pair]
    return chosen


def _evaluate(again: Again, side: _Side, points: Sequence[Point], number: int) -> None:
    import comfy.model_management
    import comfy.nested_tensor
    import comfy.samplers
    import comfy.utils

    def evaluate(denoiser: Any, noise: Tensor, _: Tensor, extra_args: Any = None, **__: object) -> Tensor:
        store = extra_args["model_options"]["transformer_options"].setdefault(RUN, {})
        for place, (*_number, sigma, kept) in enumerate([*again.points[: side.keeps], *points], -side.keeps):
            comfy.model_management.throw_exception_if_processing_interrupted()
            x = kept.to(noise.device)
            store[WHOLE] = place % 2 == 0
            level = torch.full((len(x),), sigma, device=x.device)
            synchronize(x.device)
            started = time.perf_counter()
            output = denoiser(x, level, **extra_args)
            synchronize(x.device)
            seconds = time.perf_counter() - started
            if side.first is None:
                side.first = seconds
            elif place >= 0:
                side.seconds[number, place] = seconds
            if place >= 0 and place not in side.outputs:
                side.outputs[place] = output.cpu()
        return noise

    def streams(packed: Tensor) -> Any:
        if len(again.shapes) < 2:
            return packed
        return comfy.nested_tensor.NestedTensor(comfy.utils.unpack_latents(packed, again.shapes))

    guider = copy.copy(again.guider)
    guider.model_patcher, guider.model_options = side.model, side.model.model_options
    mask = None if again.mask is None else streams(again.mask)
    sampler = comfy.samplers.KSAMPLER(evaluate)
    noise, latent = streams(again.noise), streams(again.latent)
    guider.sample(noise, latent, sampler, again.sigmas, mask, disable_pbar=True, seed=again.seed)


def _judged(name: str, sides: Mapping[str, _Side], refused: Mapping[str, str], sampling: Sampling) -> Probed:
    if name in refused:
        return Probed(name, why_not=refused[name])
    plain, side = sides[""], sides[name]
    places = sorted(plain.seconds.keys() & side.seconds.keys())
    pairs = [(plain.seconds[place], side.seconds[place]) for place in places]
    judged, share = side.outputs.keys() & plain.outputs.keys(), 1.0
    if side.whole is not None:
        # Of a run's steps so many cost what the first points of the pairs cost, and are exact; the others are judged.
        costs = [after / before for (_, place), (before, after) in zip(places, pairs, strict=True) if place % 2 == 0]
        whole, share = side.whole.share, 1 - side.whole.share
        seconds = [pair for (_, place), pair in zip(places, pairs, strict=True) if place % 2 and costs]
        pairs = [(before, whole * statistics.median(costs) * before + share * after) for before, after in seconds]
        judged = {place for place in judged if place % 2}
    if pairs:
        speedup = measure_speedup([before for before, _ in pairs], [after for _, after in pairs])
    else:
        speedup = Speedup((plain.first or 1.0) / (side.first or 1.0), 0.0, math.inf, 1)
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
        share * math.sqrt(statistics.fmean(error**2 for error in errors)) if errors else 0.0,
        side.whole is not None,
        len(errors),
    )


def _of_all(times: float, evaluations: int) -> float:
    """Return how many times faster all evaluations are if the first takes as long as before."""
    return evaluations / (1 + (evaluations - 1) / max(times, 0.001))
