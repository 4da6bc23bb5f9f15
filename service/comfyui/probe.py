"""Evaluates kept points of a run with other MODELs, in turn with the plain one: seconds, and errors of predictions.

The guider of the run samples once more, with a sampler that only evaluates these points. So ControlNets, masks, hooks,
ranges of conditionings and guiders are what they were.

A technique that keeps something of whole steps for later ones (``residual`` of Apply ToMe) is evaluated at pairs of
points, about as many steps apart as its steps are on average: whole at the first, with what is kept at the second.

One or two pairs of evaluations are too few to judge a candidate. So where there is not enough work for all, candidates
are measured one after the other until each is clear, and the last ones are not tried.

The plain model is evaluated once more behind the first round: what differs then is the machine, and no candidate is
faster that differs less.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from ...measure.expect import Probed
from ...measure.replay import Point, Sampling
from ...measure.speedup import interleaved, measure_speedup
from ...optimizers.core.devices import synchronize
from ...optimizers.core.errors import CannotHelp, InvalidSetting, PacelineError
from ...optimizers.core.phrases import phrase
from ...optimizers.core.technique import WholeSteps
from ...optimizers.in_comfyui.compilation.comfy_env import TooLong, compiled_until
from ...optimizers.in_comfyui.run.comfy_technique import AnyTechnique
from ...optimizers.in_comfyui.run.sampling_run import sampling_run
from ...optimizers.in_comfyui.run.stack import stack_of
from ...optimizers.in_comfyui.structure.protocols import ModelPatcher
from .machine import stop_if_cancelled
from .observer import ReplayInputs

TIMED = 4
"""Evaluations of a candidate in each round, after one that is not timed."""

AGAIN = 2
"""Plain evaluations behind the first round."""

_MOST = 1000.0
"""Times as fast that are told at most."""

SPARE = 30.0
"""Seconds that a probe may always take, for two rounds of all: the work of a short run is not enough for that."""

Change = Callable[[ModelPatcher], ModelPatcher]


@dataclass
class _Side:
    """What was evaluated with one MODEL: seconds by round and place among the points.

    ``whole``: which of its steps serve later ones.
    ``warm``: whether it was evaluated before, so that it is compiled and its kernels are chosen. ``added``: the
    techniques that the plain one has not. ``made`` and ``first`` are the seconds that making it and its first
    evaluation took.
    """

    model: ModelPatcher
    whole: WholeSteps | None = None
    warm: bool = False
    added: Sequence[AnyTechnique] = ()
    made: float = 0.0
    first: float = 0.0
    seconds: dict[tuple[int, int], float] = field(default_factory=dict)
    outputs: dict[int, Tensor] = field(default_factory=dict)

    @property
    def untimed(self) -> int:
        """How many evaluations its next round begins with that are not timed."""
        return int(not self.warm)

    @property
    def once(self) -> float:
        """Seconds that it took before its first evaluation was ready, over what one takes."""
        return self.made + max(0.0, self.first - statistics.median(self.seconds.values() or [self.first]))

    @property
    def nothing_done(self) -> str:
        """Why its techniques changed nothing in any of its evaluations; "" where one of them did."""
        told = [one.last_summary() for one in self.added]
        if not told or any(one.state != "inactive" for one in told):
            return ""
        return told[0].line if told[0].details else told[0].headline


def probe(
    sampling: Sampling,
    candidates: Mapping[str, Change],
    say: Callable[[float], None] = lambda share: None,
    spare: float = SPARE,
    found: list[Probed] | None = None,
    deadline: float | None = None,
) -> list[Probed]:
    """Evaluate the candidates; return what each was worth, in their order.

    The work is at most the run's, or what ``spare`` seconds allow, or what the first candidate takes: the largest of
    them. No evaluation begins behind the ``deadline``, of ``time.monotonic``: by default that is as late as the run or
    ``spare`` was long. What compiles until then is given up. ``found`` is filled as it goes, behind what it has.
    ``say`` is told the share that is done; what it raises, and ComfyUI's cancel, end it.

    `InvalidSetting` if nothing was kept of the run.
    """
    if not sampling.can_probe:
        raise InvalidSetting("Nothing was kept of this run to evaluate again.", "Run the workflow once more.")
    results = [] if found is None else found
    known = len(results)
    plain = _Side(sampling.model)
    sides, refused = {"": plain}, dict[str, Probed]()
    deadline = monotonic() + max(spare, sampling.sampling_seconds) if deadline is None else deadline
    most, there = deadline - monotonic(), stack_of(sampling.model).techniques
    for name, change in candidates.items():
        if monotonic() > deadline:
            break
        began = time.perf_counter()
        try:
            model = change(sampling.model)
        except PacelineError as error:
            refused[name] = Probed(name, why_not=error.brief if isinstance(error, CannotHelp) else str(error))
            continue
        added = [one for one in stack_of(model).techniques if one not in there]
        idle = [one.nothing_to_do(model.model_options.get("transformer_options", {})) for one in added]
        if idle and all(idle):
            refused[name] = Probed(name, why_not=idle[0])
            continue
        kept = [one.policy.whole_steps(sampling.levels) for one in stack_of(model).techniques]
        whole = next((one for one in kept if one is not None), None)
        sides[name] = _Side(model, whole, added=added, made=time.perf_counter() - began)
    each = sampling.sampling_seconds / max(1, sampling.evaluations)
    both, all_twice = 2 * (1 + TIMED) + AGAIN, (1 + 2 * TIMED) * len(sides) + AGAIN
    allowed = max(both, sampling.evaluations, min(all_twice, int(spare / max(each, 1e-6))))
    points = _points(sampling, sides.values())

    def work(names: Sequence[str], timed: int) -> int:
        return sum(timed + sides[name].untimed for name in ("", *names)) + (0 if again_plain.warm else AGAIN)

    def late() -> bool:
        return monotonic() + len(points) * each / 2 > deadline  # less than half of a side's would be in time

    done, number, alive, waiting = 0, 0, list[str](), [name for name in sides if name]
    again_plain, noise = _Side(sampling.model), 1.0
    while True:
        results[known:] = [_judged(name, sides, refused, sampling, noise) for name in candidates]
        open_ = {one.name for one in results[known:] if not (one.clear or one.why_not or one.drowned)}
        alive = [name for name in alive if name in open_]
        while waiting and done + work([*alive, waiting[0]], TIMED) <= allowed:
            alive.append(waiting.pop(0))
        if not alive or done + work(alive, len(points)) > allowed or (number and late()):
            break
        for name in interleaved(["", *alive], number):
            say(done / allowed)
            if (number or name not in ("", alive[0])) and late():
                break
            done += len(points) + sides[name].untimed
            with _trying(name, refused, deadline, most):
                _evaluate(sampling, sides[name], points, number, deadline)
                nothing = sides[name].nothing_done
                refused |= {name: Probed(name, why_not=nothing)} if nothing else {}
        if not again_plain.warm:
            again_plain.warm = True
            done += len(points[:AGAIN])
            _evaluate(sampling, again_plain, points[:AGAIN], -1, deadline)
        noise = _noise([*plain.seconds.items(), *again_plain.seconds.items()])
        number += 1
    say(1.0)
    return results


@contextmanager
def _trying(name: str, refused: dict[str, Probed], deadline: float, seconds: float) -> Iterator[None]:
    """Note in ``refused`` why a candidate cannot be computed; what the plain one (``""``) raises is raised.

    What still compiles at ``deadline``, of ``time.monotonic``, is given up; ``seconds`` is how long that was.
    """
    try:
        with compiled_until(deadline):
            yield
    except TooLong:
        why = phrase(
            "compiling takes longer than the {seconds:.0f} s of this test, and how long is not known here",
            seconds=seconds,
        )
        refused[name] = Probed(name, why_not=why, once=seconds)
    except RuntimeError as error:  # a kernel's refusal, or memory; ComfyUI's cancel is none
        if not name:
            raise
        refused[name] = Probed(name, why_not=str(error))


def _points(sampling: Sampling, sides: Iterable[_Side]) -> list[Point]:
    """Return ``TIMED`` of the kept points or fewer, spread over the run: pairs where a side has whole steps."""
    distances = [side.whole.mean_distance for side in sides if side.whole is not None]
    apart = max(1.0, max(distances, default=0.0) * sampling.evaluations / max(1, len(sampling.levels) - 1))
    kept, chosen = sampling.points, list[Point]()
    parts, count = TIMED // 2 if distances else 0, min(TIMED, len(kept))
    for part in range(parts):
        firsts = kept[part * len(kept) // parts : (part + 1) * len(kept) // parts]
        pairs = [(one, later) for one in firsts for later in kept if later[0] > one[0]]
        pairs.sort(key=lambda pair: abs(math.log((pair[1][0] - pair[0][0]) / apart)))
        chosen += [point for pair in pairs[:1] for point in pair]
    return chosen or [kept[int((number + 0.5) * len(kept) / count)] for number in range(count)]


def _evaluate(
    sampling: Sampling, side: _Side, points: Sequence[Point], number: int, deadline: float = math.inf
) -> None:
    import comfy.samplers

    def evaluate(denoiser: Any, noise: Tensor, sigmas: Tensor, extra_args: Any = None, **__: object) -> Tensor:
        run = sampling_run(extra_args["model_options"])
        untimed = side.untimed
        for place, (_, sigma, kept) in enumerate([*sampling.points[:untimed], *points], -untimed):
            stop_if_cancelled()
            if monotonic() > deadline:
                break
            x = kept.to(noise.device)
            run.whole = place < 0 or place % 2 == 0
            level = torch.full((len(x),), sigma, device=x.device)
            synchronize(x.device)
            started = time.perf_counter()
            output = denoiser(x, level, **extra_args)
            synchronize(x.device)
            seconds = time.perf_counter() - started
            if not side.warm:
                side.first = seconds
            side.warm = True
            if place >= 0:
                side.seconds[number, place] = seconds
                side.outputs.setdefault(place, output.cpu())
        return noise

    again: ReplayInputs = sampling.again
    again.sample(comfy.samplers.KSAMPLER(evaluate), again.sigmas, side.model)


def _noise(seconds: Iterable[tuple[tuple[int, int], float]]) -> float:
    """Return how many times longer the plain evaluations took in the slowest round than in the fastest one."""
    rounds: dict[int, list[float]] = {}
    for (number, _), each in seconds:
        rounds.setdefault(number, []).append(each)
    middles = [statistics.median(each) for each in rounds.values()]
    return max(middles) / max(min(middles), 1e-9)


def _judged(
    name: str, sides: Mapping[str, _Side], refused: Mapping[str, Probed], sampling: Sampling, noise: float
) -> Probed:
    if name in refused or name not in sides:
        return refused.get(name, Probed(name))
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
    return Probed(
        name,
        (speedup.low, speedup.ratio, min(speedup.high, _MOST)),
        speedup.clear,
        share * math.sqrt(statistics.fmean(error**2 for error in errors)),
        side.whole is not None,
        len(errors),
        side.once,
        noise,
    )
