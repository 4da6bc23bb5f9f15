"""The answer: which nodes to insert, and what is expected of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.choices import CHOICES
from ..workbench.expectation.expect import (
    GAIN,
    Probed,
    Range,
    expect,
    pays_from,
    propose,
    speedup,
    won_by,
)
from ..workbench.expectation.sampling import Sampling
from ..workbench.recipe import Step
from .others import apart
from .plan import Plan
from .workflow import ModelLink


@dataclass(frozen=True)
class Offer:
    """Nodes to insert, with what is expected of them.

    ``run_speedup`` is of the whole run and ``sampling_speedup`` of its steps alone, as times faster; ``distance`` is a
    share of what another seed changes; ``sampling_seconds`` are those of the steps today. ``names`` are the titles of
    the nodes. ``once`` are seconds that it costs once, ``won`` those that it wins for each picture.
    """

    label: str
    names: frozenset[str]
    chosen: tuple[tuple[ModelLink, tuple[Step, ...]], ...]
    run_speedup: Range
    sampling_speedup: Range
    distance: Range
    sampling_seconds: float
    once: float
    won: float

    @property
    def pays_from(self) -> int:
        """The picture from which on it is faster, with what it costs once."""
        return pays_from(self.once, self.won)


def make_offers(
    samplings: Sequence[Sampling],
    probed: Sequence[list[Probed]],
    plans: Sequence[Plan],
    choice: str,
    run_seconds: float,
    pictures: int,
) -> list[Offer]:
    """Return the fastest of what a choice allows; nothing where it is not certainly faster, or pays too late.

    ``pictures``: in so many it has to win back what it costs once.
    """
    offer = _offer(samplings, probed, plans, CHOICES[choice].limit, run_seconds, pictures)
    return [] if offer is None or offer.run_speedup.low < GAIN or offer.pays_from > pictures else [offer]


def _offer(
    samplings: Sequence[Sampling],
    probed: Sequence[list[Probed]],
    plans: Sequence[Plan],
    limit: float,
    run_seconds: float,
    pictures: int,
) -> Offer | None:
    chosen, expected, labels, all_names, once = [], [], [], set[str](), 0.0
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
    if not chosen:
        return None
    run_speedup = speedup(run_seconds, expected)
    sampling_seconds = sum(one.sampling_seconds for one, _ in expected)
    return Offer(
        "; ".join(dict.fromkeys(labels)),
        frozenset(all_names),
        tuple(chosen),
        run_speedup,
        speedup(sampling_seconds, expected),
        _farthest([found.distance for _, found in expected]),
        sampling_seconds,
        once,
        run_seconds * (1 - 1 / run_speedup.likely),
    )


def _farthest(distances: Sequence[Range]) -> Range:
    low, likely, high = (max(getattr(one, end) for one in distances) for end in ("low", "likely", "high"))
    return Range(low, likely, high)
