"""The answer: which nodes to insert, and what is expected of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ..core.choices import CHOICES
from ..workbench.comfyui.decoding import ProbedVAE
from ..workbench.expectation.expect import FINEST, GAIN, Probed, Range, expect, pays_from, propose, speedup, won_by
from ..workbench.expectation.sampling import Sampling, replay
from ..workbench.recipe import Step
from .others import apart
from .plan import Plan, VAELink, VAEPlan
from .sentences import Tried
from .workflow import ModelLink


@dataclass(frozen=True)
class FasterVAE:
    """Nodes to insert on a VAE link, with what was found: ``seconds`` of the run's decodings, and what is left of them.

    ``distance`` is how far the picture moves; ``once`` are seconds that it costs once.
    """

    link: VAELink
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
    chosen: tuple[tuple[ModelLink | VAELink, tuple[Step, ...]], ...]
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
        return any(isinstance(link, ModelLink) for link, _ in self.chosen)

    @property
    def pays_from(self) -> int:
        """The picture from which on it is faster, with what it costs once."""
        return pays_from(self.once, self.won)


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
    chosen: list[tuple[ModelLink | VAELink, tuple[Step, ...]]] = []
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
    return None if run_speedup.low < GAIN or offer.pays_from > pictures else offer


def faster_vae(plan: VAEPlan, probed: ProbedVAE, choice: str, pictures: int) -> FasterVAE | None:
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


def _together(plan: VAEPlan, seconds: float, chosen: Sequence[Probed]) -> FasterVAE:
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
