"""The answer: which nodes to insert, and what is expected of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.choices import CHOICES
from ...workbench.expectation.expect import Probed, Range, expect, propose, speed
from ...workbench.expectation.sampling import Sampling
from ...workbench.recipe import Step
from .others import apart
from .plan import Plan
from .wires import Wire

_SHARES = (1.0, 0.5, 0.25)
"""Of what a choice allows: the best of each is offered, as a budget is a scale."""

_GAIN = 1.05
"""Less is not offered: it would read as 1.0x."""


@dataclass(frozen=True)
class Offer:
    """Nodes to insert, with what is expected of them.

    ``speed`` is of the whole run and ``steps`` of its steps alone, as times faster; ``distance`` is a share of what
    another seed changes; ``seconds`` are those of the steps today.
    """

    label: str
    chosen: tuple[tuple[Wire, tuple[Step, ...]], ...]
    speed: Range
    steps: Range
    distance: Range
    seconds: float


def make_offers(
    samplings: Sequence[Sampling], probed: Sequence[list[Probed]], plans: Sequence[Plan], choice: str, seconds: float
) -> list[Offer]:
    """Return the fastest of what a choice allows first, then more careful ones, each but once."""
    found: dict[str, Offer] = {}
    for share in _SHARES:
        offer = _offer(samplings, probed, plans, CHOICES[choice].limit * share, seconds)
        if offer is not None:
            found.setdefault(offer.label, offer)
    return list(found.values())


def _offer(
    samplings: Sequence[Sampling], probed: Sequence[list[Probed]], plans: Sequence[Plan], limit: float, seconds: float
) -> Offer | None:
    chosen, expected, labels = [], [], []
    for number, plan in enumerate(plans):
        own = [pair for pair in zip(samplings, probed, strict=True) if pair[0].wire == str(number)]
        proposed = [(one, propose(one, found, limit, apart(plan.tries), reuse=plan.reuse)) for one, found in own]
        best = [(one, proposal) for one, proposal in proposed if proposal is not None]
        if not best:
            expected += [(one, expect(one)) for one, _ in own]
            continue
        # Several samplers on a wire share its nodes: those of the longest, and the most careful budget.
        names = max(best, key=lambda pair: pair[0].steps)[1].names
        budget = min((proposal.budget for _, proposal in best if proposal.budget is not None), default=None)
        chosen.append((plan.wire, tuple(plan.steps(names, budget))))
        labels.append(" + ".join([*names, *(() if budget is None else (f"Reuse Steps {budget:g}",))]))
        expected += [(one, expect(one, [each for each in found if each.name in names], budget)) for one, found in own]
    if not chosen:
        return None
    steps = speed(sum(one.steps for one, _ in expected), expected)
    if steps.likely < _GAIN:
        return None
    distances = [pair[1].distance for pair in expected]
    return Offer(
        "; ".join(dict.fromkeys(labels)),
        tuple(chosen),
        speed(seconds, expected),
        steps,
        _farthest(distances),
        sum(one.steps for one, _ in expected),
    )


def _farthest(distances: Sequence[Range]) -> Range:
    low, likely, high = (max(getattr(one, end) for one in distances) for end in ("low", "likely", "high"))
    return Range(low, likely, high)
