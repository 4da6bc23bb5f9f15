"""The answer: which nodes to insert, what is expected of them, and what a proof has measured.

A proof draws the same seeds plain and faster, in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from torch import Tensor

from ..core.choices import CHOICES
from ..core.phrases import Phrase
from ..optimizers.hosts.comfyui.structure.protocols import VAE, Latent
from ..workbench.comfyui.decoding import ProbedVAE
from ..workbench.comfyui.links import require_latent
from ..workbench.comfyui.machine import stop_if_cancelled
from ..workbench.comfyui.observer import Observer
from ..workbench.comfyui.output_files import Entry, OutputFiles
from ..workbench.comfyui.sampling import decode, streams_of
from ..workbench.expectation.expect import FINEST, GAIN, Probed, Range, expect, pays_from, propose, speedup, won_by
from ..workbench.expectation.sampling import Sampling, replay
from ..workbench.measurement.drawn import Drawn, TimedRun
from ..workbench.measurement.evidence import LATE, kept_levels
from ..workbench.measurement.measure import SIDES, MeasurePlan, measure
from ..workbench.measurement.picture import side_by_side
from ..workbench.measurement.quality import to_8_bit
from ..workbench.measurement.speedup import measure_speedup
from ..workbench.recipe import Step
from .others import apart
from .plan import Plan
from .runs import PICTURES
from .sentences import Tried, proved
from .workflow import ModelLink


@dataclass(frozen=True)
class FasterVAE:
    """Nodes to insert on a VAE link, with what was found: ``seconds`` of the run's decodings, and what is left of them.

    ``distance`` is how far the picture moves; ``once`` are seconds that it costs once.
    """

    link: ModelLink
    tries: Mapping[str, Step]
    seconds: float
    time_left: Range
    distance: float
    once: float

    @property
    def won(self) -> float:
        """Seconds that it wins for each picture."""
        return self.seconds * (1 - self.time_left.likely)


@dataclass(frozen=True)
class Offer:
    """Nodes to insert, with what is expected of them.

    ``run_speedup`` is of the whole run, ``sampling_speedup`` of its steps alone and ``decoding_speedup`` of its VAEs
    that it changes, None where it changes none, as times faster; ``distance`` is a
    share of what another seed changes; ``sampling_seconds`` are those of the steps today. ``names`` are the titles of
    the nodes. ``once`` are seconds that it costs once, ``won`` those that it wins for each picture.
    """

    label: str
    names: frozenset[str]
    chosen: tuple[tuple[ModelLink, tuple[Step, ...]], ...]
    run_speedup: Range
    sampling_speedup: Range
    decoding_speedup: Range | None
    distance: Range
    sampling_seconds: float
    once: float
    won: float

    @property
    def changes_steps(self) -> bool:
        """Whether a sampler draws otherwise with it, which a proof can measure."""
        return any(link.input == "model" for link, _ in self.chosen)


def make_offer(
    samplings: Sequence[Sampling],
    probed: Sequence[list[Probed]],
    plans: Sequence[Plan],
    vaes: Sequence[FasterVAE],
    choice: str,
    run_seconds: float,
    pictures: int,
) -> Offer | None:
    """Return the fastest of what a choice allows; None where it is not certainly faster, or pays too late.

    ``pictures``: in so many it has to win back what it costs once.
    """
    limit = CHOICES[choice].limit
    chosen: list[tuple[ModelLink, tuple[Step, ...]]] = []
    expected, labels, all_names, once = [], [], set[str](), 0.0
    for number, plan in enumerate(plans):
        pairs = zip(samplings, probed, strict=True)
        own = [
            (one, [each for each in found if pays_from(each.once, won_by(one, each)) <= pictures])
            for one, found in pairs
            if one.link == str(number)
        ]
        proposed = [(one, propose(one, found, limit, apart(plan.tries), reuse=plan.reuse)) for one, found in own]
        best = [(one, proposal) for one, proposal in proposed if proposal is not None]
        if not best:
            expected += [(one, expect(one)) for one, _ in own]
            continue
        # Several samplers on a link share its nodes: those of the longest, and the most careful budget.
        names = max(best, key=lambda pair: pair[0].sampling_seconds)[1].names
        budget = min((proposal.budget for _, proposal in best if proposal.budget is not None), default=None)
        once += sum(max(each.once for _, found in own for each in found if each.name == name) for name in names)
        all_names |= {*names, *(() if budget is None else ("Reuse Steps",))}
        chosen.append((plan.link, tuple(plan.nodes(names, budget))))
        labels.append(" + ".join([*names, *(() if budget is None else (f"Reuse Steps {budget:g}",))]))
        expected += [(one, expect(one, [each for each in found if each.name in names], budget)) for one, found in own]
    for vae in vaes:
        once += vae.once
        all_names |= {*vae.tries}
        chosen.append((vae.link, tuple(vae.tries.values())))
        labels.append(" + ".join(vae.tries))
    if not chosen:
        return None
    steps = [(one.sampling_seconds, found.time_left) for one, found in expected]
    decodings = [(vae.seconds, vae.time_left) for vae in vaes]
    run_speedup = speedup(run_seconds, [*steps, *decodings])
    sampling_seconds = sum(seconds for seconds, _ in steps)
    offer = Offer(
        "; ".join(dict.fromkeys(labels)),
        frozenset(all_names),
        tuple(chosen),
        run_speedup,
        speedup(sampling_seconds, steps) if steps else Range(1.0, 1.0, 1.0),
        speedup(sum(seconds for seconds, _ in decodings), decodings) if decodings else None,
        _farthest([found.distance for _, found in expected], [vae.distance for vae in vaes]),
        sampling_seconds,
        once,
        run_seconds * (1 - 1 / run_speedup.likely),
    )
    return None if run_speedup.low < GAIN or pays_from(once, offer.won) > pictures else offer


def faster_vae(plan: Plan, probed: ProbedVAE, choice: str, pictures: int) -> FasterVAE | None:
    """Return the fastest of what a choice allows on a VAE link; None where nothing is faster, or pays too late.

    ``pictures``: in so many it has to win back what it costs once. Seconds multiply, and errors add up in squares.
    """
    faster = [one for one in probed.found if one.faster]
    subsets = [chosen for count in range(1, len(faster) + 1) for chosen in combinations(faster, count)]
    made = [_together(plan, probed.seconds, chosen) for chosen in subsets]
    allowed = [
        one for one in made if one.distance <= CHOICES[choice].limit and pays_from(one.once, one.won) <= pictures
    ]
    return max(allowed, key=lambda one: one.won, default=None)


def _together(plan: Plan, seconds: float, chosen: Sequence[Probed]) -> FasterVAE:
    left = Range(*(math.prod(1 / max(one.speedup[end], 0.1) for one in chosen) for end in (2, 1, 0)))
    distance = sum(one.error**2 for one in chosen) ** 0.5
    tries = {one.name: plan.tries[one.name] for one in chosen}
    return FasterVAE(plan.link, tries, seconds, left, distance, sum(one.once for one in chosen))


def reusing(sampling: Sampling, limit: float) -> Tried:
    """Return what became of Reuse Steps alone in one run of a sampler, for the reason why it is not offered."""
    farthest = math.inf if propose(sampling, (), limit) is None else 0.0
    return without_trial(sampling.link, "Reuse Steps", farthest, replay(sampling, FINEST).why_not)


def without_trial(link: str, name: str, farthest: float = 0.0, why_not: str = "") -> Tried:
    """Return what gains too little of the whole run, or moves the picture too far, or cannot be, without a trial."""
    return Tried(link, Probed(name, (2.0, 2.0, 2.0), clear=True, points=1, why_not=why_not), 1.0, farthest)


def _farthest(distances: Sequence[Range], decoded: Sequence[float]) -> Range:
    """Return how far the farthest picture moves: by its steps and by its VAE, in squares."""
    moved = max(decoded, default=0.0)
    return Range(*(math.hypot(max((one[end] for one in distances), default=0.0), moved) for end in range(3)))


@dataclass
class Proof:
    """``text`` is None before it is judged, ``picture`` where none was decoded.

    ``latents``: of both sides, by side, seed and end.
    """

    observer: Observer
    latents: dict[str, Latent] = field(default_factory=dict)
    text: Phrase | None = None
    picture: Entry | None = None

    @property
    def seeds(self) -> int:
        """How many were drawn."""
        return len({name.split()[1] for name in self.latents})

    def judge(self, latents: Mapping[str, Latent], vae: VAE | None) -> None:
        """Say what these latents and those before show, and save the farthest pair as a picture.

        Nothing is said yet where the seconds of few seeds are not clear. The frames of a video are not decoded, which
        could take longer than the proof.
        """
        for latent in latents.values():
            require_latent("The sampler's result", latent)
        self.latents |= latents
        samplings, seeds = [*self.observer.samplings], self.seeds
        times = ([_sum(samplings, "sampling_seconds", f"{side} {seed}") for seed in range(seeds)] for side in SIDES)
        if seeds < PICTURES and not measure_speedup(*times).settled:
            return
        ends = sorted({name.split()[2] for name in self.latents})
        drawings = [_ProofDraw(samplings, self.observer, self.latents, seeds, end) for end in ends]
        judged = [(drawing, measure(drawing.draw, drawing.plan)) for drawing in drawings]
        drawing, worst = max(judged, key=lambda pair: pair[1].verdict.seed_share or 0.0)
        plain, faster = (_sum(samplings, "computed", side) / seeds for side in SIDES)
        self.text = proved(worst, (faster, plain), seeds)
        if worst.verdict.seed_share is None or vae is None:
            return
        seed, number = divmod(worst.evidence.worst, worst.evidence.count // seeds)
        drawn = [drawing.draw(side, seed, 0).latents[0][number][None] for side in SIDES]
        if drawn[0].ndim != 4:
            return
        pictures = side_by_side(*(to_8_bit(decode(vae, latent)) for latent in drawn))
        self.picture = OutputFiles("paceline/proof", keep=False).save_picture("proof.png", pictures[0])


class _ProofDraw:
    """What was drawn of one LATENT of the workflow, for the judge; seconds are of all samplers' steps."""

    def __init__(
        self, samplings: Sequence[Sampling], observer: Observer, latents: Mapping[str, Latent], seeds: int, end: str
    ) -> None:
        self._samplings, self._observer, self._latents, self._end = samplings, observer, latents, end
        plain = [one for one in samplings if one.link.startswith("baseline ")]
        # What fewer steps would be is the scheduler's to say, which a sampler does not know.
        alone = len(plain) == seeds and all(one.again is not None for one in plain)
        steps = len(plain[0].levels) - 1 if alone else 1
        self.plan = MeasurePlan(steps, seeds, warm_up=None, controls=(LATE,) if alone else ())

    def draw(self, side: str, seed: int, steps: int) -> Drawn:
        if side == LATE:
            return self._without_late_levels(seed, steps)
        seconds = _sum(self._samplings, "sampling_seconds", f"{side} {seed}")
        return Drawn(TimedRun(seconds), streams_of(self._latents[f"{side} {seed} {self._end}"]["samples"]))

    def _without_late_levels(self, seed: int, steps: int) -> Drawn:
        again: Any = next(one.again for one in self._samplings if one.link.startswith(f"baseline {seed} "))
        last = len(again.sigmas) - 1
        sigmas = again.sigmas[[*(kept_levels(last, steps) or ()), last]]
        samples: Tensor = again.sample(again.sampler, sigmas, callback=lambda *_: stop_if_cancelled())
        return Drawn(TimedRun(self._observer.samplings[-1].sampling_seconds), streams_of(samples))


def _sum(samplings: Sequence[Sampling], name: str, link: str) -> float:
    return sum(float(getattr(one, name)) for one in samplings if one.link.startswith(f"{link} "))
