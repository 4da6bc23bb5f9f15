"""Evaluates kept points of a run with other MODELs, in turn with the plain one: seconds, and errors of predictions.

The guider of the run samples once more, with a sampler that only evaluates these points. So ControlNets, masks, hooks,
ranges of conditionings and guiders are what they were.

What a technique keeps from one step for the next ones (``residual`` of Apply ToMe) is kept from point to point here,
which are farther apart: where it computes most points whole, it seems to gain nothing, and is not proposed.
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
from ...optimizers.hosts.comfyui.protocols import ModelPatcher
from ..expectation.sampling import Sampling
from ..measurement.speedup import Speedup, interleaved, measure_speedup
from .observer import Again

FEWEST, MOST = 1, 4
"""Points at which each candidate is evaluated in the first round, as many as the work allows."""

Change = Callable[[ModelPatcher], ModelPatcher]
Say = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Probed:
    """What one candidate was worth in single evaluations.

    Attributes:
        speedup: how many times faster than the plain one, ``[low, ratio, high]``; [1, 1, 1] where it was not evaluated.
        clear: whether more rounds would tell nothing new.
        error: root mean square over the points of the prediction's error, as a share of what another seed changes.
        points: how many different evaluations that is of.
        once: seconds that its first evaluation took more than a later one: compiling, measuring kernels.
        why_not: why it was not evaluated; empty if it was.
    """

    name: str
    speedup: tuple[float, float, float] = (1.0, 1.0, 1.0)
    clear: bool = False
    error: float = 0.0
    points: int = 0
    once: float = 0.0
    why_not: str = ""


@dataclass
class _Side:
    """What was evaluated with one MODEL: seconds by round and point."""

    model: ModelPatcher
    keeps: bool = False
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
            sides[name] = _Side(change(sampling.model), name in keeping)
        except PacelineError as error:
            refused[name] = str(error)
    more = sum(side.keeps for side in sides.values())
    allowed = max(len(sides) + more, int(most * sampling.evaluations))
    count = max(FEWEST, min(MOST, len(again.points), (allowed - more) // len(sides)))
    points = [again.points[int((number + 0.5) * len(again.points) / count)] for number in range(count)]
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


def _evaluate(again: Again, side: _Side, points: Sequence[tuple[int, float, Tensor]], number: int) -> None:
    import comfy.model_management
    import comfy.nested_tensor
    import comfy.samplers
    import comfy.utils

    def evaluate(denoiser: Any, noise: Tensor, _: Tensor, extra_args: Any = None, **__: object) -> Tensor:
        for place, (at, sigma, kept) in enumerate([*again.points[: side.keeps], *points]):
            comfy.model_management.throw_exception_if_processing_interrupted()
            x = kept.to(noise.device)
            level = torch.full((len(x),), sigma, device=x.device)
            synchronize(x.device)
            started = time.perf_counter()
            output = denoiser(x, level, **extra_args)
            synchronize(x.device)
            seconds = time.perf_counter() - started
            if side.first is None:
                side.first = seconds
            elif place >= side.keeps:
                side.seconds[number, at] = seconds
            if place >= side.keeps and at not in side.outputs:
                side.outputs[at] = output.cpu()
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
    both = plain.seconds.keys() & side.seconds.keys()
    if both:
        pairs = [(plain.seconds[place], side.seconds[place]) for place in sorted(both)]
        speedup = measure_speedup([before for before, _ in pairs], [after for _, after in pairs])
    else:
        speedup = Speedup((plain.first or 1.0) / (side.first or 1.0), 0.0, math.inf, 1)
    errors = [
        sampling.share(sampling.sketch.of(side.outputs[at]) - sampling.sketch.of(plain.outputs[at]))
        for at in side.outputs.keys() & plain.outputs.keys()
    ]
    low, ratio, high = (
        _of_all(times, sampling.evaluations) if side.keeps else times
        for times in (speedup.low, speedup.ratio, min(speedup.high, 1000.0))
    )
    once = (side.first or 0.0) - statistics.median(side.seconds.values()) if side.seconds else 0.0
    return Probed(
        name,
        (low, ratio, high),
        speedup.clear,
        math.sqrt(statistics.fmean(error**2 for error in errors)) if errors else 0.0,
        len(errors),
        max(0.0, once),
    )


def _of_all(times: float, evaluations: int) -> float:
    """Return how many times faster all evaluations are if the first takes as long as before."""
    return evaluations / (1 + (evaluations - 1) / max(times, 0.001))
