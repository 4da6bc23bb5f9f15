"""The one judge: two ways to draw, in turn, each round from another seed; what it took, and how far apart they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean, median
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ..optimizers.core.errors import require_integer
from ..optimizers.core.phrases import phrase
from .drawn import Drawn, Sounds, TimedRun, compare_sounds
from .evidence import CONTROLS, LATE, TOO_LONG, Control, Evidence, kept_levels, share_of, steps_that_fit
from .picture import Distance, Font, average, comparison_sheet, no_picture, seed_change, spread
from .speedup import MOST_ROUNDS, Speedup, interleaved, measure_speedup
from .verdict import Verdict, judge, settled

SIDES = ("baseline", "optimized")
MOST_SHOWN = 16

Draw = Callable[[str, int, int], Drawn]
"""Draws once: one of ``SIDES``, or the baseline as one of ``CONTROLS``; from which seed, counted from 0; in how many
steps."""


@dataclass(frozen=True)
class MeasurePlan:
    """How two sides are measured.

    Attributes:
        steps: of each run.
        runs: timed runs of each side, each from another seed. From two on there is a confidence interval.
        most_runs: where speed or picture are not clear after ``runs``, up to so many are made; 0 for no more.
        prompts: as many take turns with the seeds, and each is drawn.
        warm_up: the seed of a run of each side before, which is not timed: loading, compiling, first allocations. The
            baseline's picture belongs to the noise floor, or shows what it draws again if a run has this seed too.
            None where all is drawn already.
        controls: drawn where the optimized side is faster and its pictures are others.
    """

    steps: int
    runs: int = 3
    most_runs: int = 0
    prompts: int = 1
    warm_up: int | None = MOST_ROUNDS
    controls: Sequence[str] = CONTROLS

    def __post_init__(self) -> None:
        require_integer("runs", self.runs, 1, MOST_ROUNDS)
        require_integer("most_runs", self.most_runs, 0, MOST_ROUNDS)

    @property
    def least(self) -> int:
        return max(self.runs, self.prompts)

    @property
    def most(self) -> int:
        return max(self.least, self.most_runs)

    @property
    def draws(self) -> int:
        """How often is drawn at most, if the baseline repeats itself."""
        return 2 * self.most + 2 + (self.most > 1) + self.most * len(self.controls)


@dataclass(frozen=True)
class Comparison:
    """What was found.

    Attributes:
        unit: what the speed-up is of: ``step``, ``sampling`` (a single step, or steps that differ), ``decode`` or
            ``picture`` (both).
        runs: by side.
        pictures: uint8 ``[pictures, height, width, 3]``, those of the first seed first, by side and control; of
            ``other_seed`` one that is of no round. Empty where latents were compared.
        notes: what could not be measured, and why.
        about: what the host adds to the record.
    """

    unit: str
    runs: Mapping[str, list[TimedRun]]
    pictures: Mapping[str, Tensor]
    sounds: Sounds | None
    evidence: Evidence
    verdict: Verdict
    notes: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> dict[str, list[float]]:
        """Of each round in the headline's unit, by side."""
        return {side: [run.seconds(self.unit) for run in runs] for side, runs in self.runs.items()}

    def peak(self, side: str) -> int | None:
        """Return the most bytes that a side took on its device; None if that was not measured."""
        return max((run.device_bytes for run in self.runs[side] if run.device_bytes is not None), default=None)

    @property
    def worst_run(self) -> int | None:
        """The number of the round, from 1, that the picture is of; None if there was one round."""
        rounds = len(self.runs["baseline"])
        return None if rounds == 1 else 1 + self.evidence.worst * rounds // self.evidence.count

    @property
    def shown(self) -> list[int]:
        """The indices of the pictures that are written and shown: the worst first, of a video some in their order."""
        if self.evidence.frames > 1:
            return spread(self.evidence.count, MOST_SHOWN, self.evidence.worst)
        distances = self.evidence.distances
        return sorted(range(len(distances)), key=lambda index: -distances[index].rmse)[:MOST_SHOWN]

    def sheet(self, lines: Sequence[str], font: Callable[[int], Font] | None = None) -> Image.Image:
        """Return the farthest picture with the verdict and ``lines`` below; ``font`` as of ``comparison_sheet``."""
        control, worst = self.evidence.control, self.evidence.worst
        column = None if control is None else (control.title, self.pictures[control.kind][worst])
        before, after = (self.pictures[side][worst] for side in SIDES)
        return comparison_sheet(before, after, [self.verdict.text, *lines], column, font)


class _Pairs:
    """What both sides drew from the same seeds; each pair is compared once, however often there are new ones."""

    def __init__(self, runs: Mapping[str, list[Drawn]], others: Sequence[Drawn], prompts: int) -> None:
        self.before, self.after = runs.values()
        self.distances: list[Distance] = []
        self._others, self._prompts = others, prompts
        self._compared, self._apart = 0, cache(Drawn.distances)

    def update(self) -> None:
        for after, before in zip(self.after[self._compared :], self.before[self._compared :], strict=True):
            self.distances += after.distances(before)
        self._compared = len(self.after)

    @property
    def same_bits(self) -> bool:
        return all(map(Drawn.equals, self.before, self.after))

    @property
    def speed(self) -> tuple[str, Speedup]:
        """What the headline's speed-up is of, and the speed-up."""
        sides = [[one.times for one in side] for side in (self.before, self.after)]
        both = [*sides[0], *sides[1]]
        if all(run.decode_seconds is None for run in both):
            unit = "step" if all(run.step_seconds for run in both) else "sampling"
        else:
            unit = "decode" if all(run.sampling_seconds is None for run in both) else "picture"
        return unit, measure_speedup(*([run.seconds(unit) for run in side] for side in sides))

    def broken(self) -> str:
        """Return the fault if one of the pictures is none at all, else an empty text."""
        for whose, side in (("The baseline's image", self.before), ("The optimized image", self.after)):
            if side[0].show is not None:
                finite = torch.cat([one.decoded.finite for one in side])
                if fault := no_picture(whose, _together(side), finite):
                    return fault
        return ""

    def seed_change(self) -> Distance:
        draws = [*enumerate(self._others, MOST_ROUNDS), *enumerate(self.before)]
        of_prompts = ([one for seed, one in draws if seed % self._prompts == prompt] for prompt in range(self._prompts))
        return seed_change(of_prompts, self._apart)

    def clear(self) -> bool:
        """Say whether the speed is clear, and how far the worst picture is from the baseline's."""
        speedup = self.speed[1]
        if not speedup.settled or not speedup.faster:
            return speedup.settled
        self.update()
        if self.same_bits or self.broken():
            return True
        found, frames = [share_of(one, self.seed_change()) for one in self.distances], self.before[0].frames
        shares = [share for share in found if share is not None]
        worst = [max(shares[start : start + frames]) for start in range(0, len(shares), frames)]
        return not worst or settled(worst)


def measure(draw: Draw, plan: MeasurePlan, say: Callable[[str], None] = lambda text: None) -> Comparison:
    """Draw with both sides in turn until speed and picture are clear, and judge the difference.

    ``say`` is told what is going on. `InvalidSetting` for pictures that differ in size.
    """
    warmed: list[Drawn] = []
    for side in SIDES if plan.warm_up is not None else ():
        say(phrase("warm-up {number} of {total}: {side}", number=1, total=1, side=side))
        warmed.append(draw(side, plan.warm_up or 0, plan.steps))
    repeats = plan.warm_up is not None and plan.warm_up < plan.least
    others = [] if repeats else warmed[:1]
    runs: dict[str, list[Drawn]] = {side: [] for side in SIDES}
    before, after = runs.values()
    pairs = _Pairs(runs, others, plan.prompts)
    for number in range(plan.most):
        if number >= plan.least and pairs.clear():
            break
        for side in interleaved(SIDES, number):
            about: dict[str, str | float] = {"number": number + 1, "total": plan.most, "side": side}
            at_most = phrase("round {number} of at most {total}: {side}", **about)
            say(at_most if plan.most > plan.least else phrase("round {number} of {total}: {side}", **about))
            runs[side].append(draw(side, number, plan.steps))
    again = warmed[:1] if repeats else []
    for number, one in enumerate(before) if others and plan.most > 1 and not pairs.same_bits else ():
        say(phrase("{side} again, from the same seed", side="baseline"))
        again.append(draw("baseline", number, plan.steps))
        if again[-1].equals(one):
            break
    say(phrase("comparing the pictures"))
    pairs.update()
    unit, speedup = pairs.speed
    broken = pairs.broken()
    sounds = None
    if before[0].hear is not None:
        heard = [torch.cat([one.hear() for one in side if one.hear]) for side in runs.values()]
        sounds = compare_sounds(heard[0], heard[1], before[0].rate)
    pictures: dict[str, Tensor] = {}
    if before[0].show is not None:
        pictures = {side: _together(drawn) for side, drawn in runs.items()}
        pictures |= {"other_seed": _together(others)} if others else {}
    controls, notes = list[Control](), list[str]()
    if plan.controls and plan.steps > 1 and speedup.faster and any(one.rmse for one in pairs.distances) and not broken:
        for control, drawn in _controls(draw, plan, runs, say, notes):
            controls.append(control)
            pictures |= {control.kind: _together(drawn)} if pictures else {}
    evidence = Evidence(
        speedup=speedup,
        distances=pairs.distances,
        same_bits=pairs.same_bits,
        seed=pairs.seed_change(),
        repeat=max(_distances(again, before), key=lambda one: one.rmse, default=None),
        broken=broken or ("" if sounds is None else sounds.broken),
        controls=tuple(controls),
        frames=before[0].frames,
        sound=None if sounds is None else sounds.distance,
        work=_work(after),
    )
    times = {side: [one.times for one in drawn] for side, drawn in runs.items()}
    return Comparison(unit, times, pictures, sounds, evidence, judge(evidence), notes)


def _controls(
    draw: Draw, plan: MeasurePlan, runs: Mapping[str, list[Drawn]], say: Callable[[str], None], notes: list[str]
) -> Iterator[tuple[Control, list[Drawn]]]:
    """Draw the controls from all seeds; tell in ``notes`` why one is none."""
    times = [one.times for one in runs["baseline"]]
    whole, allowed = (median(one.times.sampling_seconds or 0.0 for one in drawn) for drawn in runs.values())
    fit = steps_that_fit(plan.steps, whole, median(one.step_seconds or whole / plan.steps for one in times), allowed)
    if fit < 1:
        notes.append(f"fewer steps: no step of the baseline fits into the time of the optimized {plan.steps} steps")
        return
    for kind in plan.controls:
        if kind == LATE and kept_levels(plan.steps, fit) is None:
            continue
        late = phrase("baseline without some late noise levels")
        say(late if kind == LATE else phrase("baseline with fewer steps"))
        drawn = [draw(kind, seed, fit) for seed in range(len(times))]
        seconds = median(one.times.sampling_seconds or 0.0 for one in drawn)
        if seconds > TOO_LONG * allowed:
            name, count = kind.replace("_", " "), "1 step" if fit == 1 else f"{fit} steps"
            notes.append(f"{name}: {count} took longer than expected, so nothing is compared with them")
            continue
        difference = average(_distances(drawn, runs["baseline"]))
        yield Control(kind, fit, plan.steps, seconds, whole / seconds, difference), drawn


def _work(drawn: Sequence[Drawn]) -> tuple[float, float] | None:
    counted = [one.work for one in drawn if one.work is not None]
    if not counted or len(counted) < len(drawn):
        return None
    computed, total = (fmean(each) for each in zip(*counted, strict=True))
    return computed, total


def _distances(drawn: Sequence[Drawn], references: Sequence[Drawn]) -> list[Distance]:
    return [found for one, reference in zip(drawn, references, strict=False) for found in one.distances(reference)]


def _together(drawn: Sequence[Drawn]) -> Tensor:
    return torch.cat([one.decoded.pictures for one in drawn])
