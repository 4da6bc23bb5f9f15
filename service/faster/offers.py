"""The answer: which nodes to insert, and what is expected of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...measure.expect import (
    COMPILED_VAE,
    COMPILED_VAE_MOVES,
    FINEST,
    GAIN,
    Probed,
    Range,
    expect,
    pays_from,
    propose,
    speedup,
)
from ...measure.replay import Sampling, replay
from ...optimizers.core.choices import CHOICES
from ...optimizers.core.phrases import Phrase, phrase
from ...optimizers.in_comfyui.run.reporting import Payload
from ..apply_recipe import shown_steps
from .plan import Plan
from .prompts import FEWEST, PICTURES, Chosen
from .sentences import Tried, expected_parts, expected_speed, told

DecodedBy = tuple[str, float, list[Probed]]
"""The number of a VAE's plan, the seconds in which it decoded, and what its nodes are worth."""


@dataclass(frozen=True)
class Offer:
    """Nodes to insert, with what is expected of them.

    ``run_speedup`` is of the whole run, ``sampling_speedup`` of its steps alone, as times faster; ``decodes_faster``
    says whether a VAE is among what it changes. ``distance`` is a share of what another seed changes;
    ``sampling_seconds`` are those of the steps today. ``names`` are the titles of the nodes. ``once`` are seconds that
    it costs once, ``won`` those that it wins for each picture.
    """

    label: str
    names: frozenset[str]
    chosen: Chosen
    run_speedup: Range
    sampling_speedup: Range
    decodes_faster: bool
    distance: Range
    sampling_seconds: float
    once: float
    won: float

    @property
    def said(self) -> Phrase:
        """It in a sentence, for the next time."""
        expected = expected_speed(self.run_speedup, self.once, self.won)
        return phrase("{name}: {why}.", name=self.label, why=expected)

    @property
    def payload(self) -> Payload:
        """``Offer`` in web/js/payloads.d.ts. A proof measures steps: of a VAE alone there is none."""
        steps = self.sampling_speedup if any(link.input == "model" for link, _ in self.chosen) else None
        each = 0.0 if steps is None else self.sampling_seconds * (1 + 2 / steps.likely)
        return {
            "label": self.label,
            "expected": told(expected_speed(self.run_speedup, self.once, self.won)),
            "about": told(expected_parts(steps, COMPILED_VAE if self.decodes_faster else None, self.distance)),
            "sampling_speedup": [*self.sampling_speedup],
            "proof_seconds": [seeds * each for seeds in (FEWEST, PICTURES)] if each else [],
            "measured": None,
            "picture": None,
            "beyond": False,
            "inserts": [
                {
                    "name": link.input,
                    "receivers": [{"node": node, "input": name} for node, name in link.receivers],
                    "steps": shown_steps(steps),
                }
                for link, steps in self.chosen
            ],
        }


def make_offer(
    samplings: Sequence[Sampling],
    probed: Sequence[list[Probed]],
    plans: Sequence[Plan],
    vaes: Sequence[DecodedBy],
    choice: str,
    run_seconds: float,
    pictures: int,
) -> Offer | None:
    """Return the fastest of what a choice allows; None where it is not certainly faster, or pays too late.

    ``pictures``: in so many it has to win back what it costs once.
    """
    limit = CHOICES[choice].limit
    chosen, expected, labels, names, once = [], [], list[str](), set[str](), 0.0
    for number, plan in enumerate(plans):
        pairs = zip(samplings, probed, strict=True)
        own = [
            (one, [each for each in found if pays_from(each.once, each.wins(one.sampling_seconds)) <= pictures])
            for one, found in pairs
            if one.link == str(number)
        ]
        proposed = [(one, propose(one, found, limit, reuse=plan.reuse)) for one, found in own]
        best = [(one, proposal) for one, proposal in proposed if proposal is not None]
        if not best:
            expected += [(one.sampling_seconds, expect(one)) for one, _ in own]
            continue
        # Several samplers on a link share its nodes: those of the longest, and the most careful budget.
        own_names = max(best, key=lambda pair: pair[0].sampling_seconds)[1].names
        budget = min((proposal.budget for _, proposal in best if proposal.budget is not None), default=None)
        once += sum(max(each.once for _, found in own for each in found if each.name == name) for name in own_names)
        names |= {*own_names, *(() if budget is None else ("Reuse Steps",))}
        chosen.append((plan.link, plan.nodes(own_names, budget)))
        labels.append(" + ".join([*own_names, *(() if budget is None else (f"Reuse Steps {budget:g}",))]))
        for one, found in own:
            settings = expect(one, [each for each in found if each.name in own_names], budget)
            expected.append((one.sampling_seconds, settings))
    decoded = []
    for link, seconds, rules in vaes:
        plan = plans[int(link)]
        for rule in rules:
            if rule.faster and pays_from(rule.once, rule.wins(seconds)) <= pictures:
                decoded.append((seconds, Range(*(1 / times for times in reversed(rule.speedup)))))
                once, names = once + rule.once, names | {rule.name}
                chosen.append((plan.link, plan.nodes([rule.name], None)))
                labels.append(rule.name)
    if not chosen:
        return None
    steps = [(seconds, found.time_left) for seconds, found in expected]
    run_speedup = speedup(run_seconds, [*steps, *decoded])
    sampling_seconds = sum(seconds for seconds, _ in steps)
    farthest = [max((found.distance[end] for _, found in expected), default=0.0) for end in range(3)]
    offer = Offer(
        "; ".join(dict.fromkeys(labels)),
        frozenset(names),
        chosen,
        run_speedup,
        speedup(sampling_seconds, steps) if steps else Range(1.0, 1.0, 1.0),
        bool(decoded),
        Range(*(math.hypot(one, COMPILED_VAE_MOVES if decoded else 0.0) for one in farthest)),
        sampling_seconds,
        once,
        run_seconds * (1 - 1 / run_speedup.likely),
    )
    return None if run_speedup.low < GAIN or pays_from(once, offer.won) > pictures else offer


def what_became(
    samplings: Sequence[Sampling],
    probed: Sequence[list[Probed]],
    plans: Sequence[Plan],
    vaes: Sequence[DecodedBy],
    limit: float,
) -> list[Tried]:
    """Return what became of each candidate of each sampler and VAE."""
    tried = [
        Tried(sampling.link, one, one.wins(sampling.sampling_seconds), expect(sampling, [one]).distance.high)
        for sampling, found in zip(samplings, probed, strict=True)
        for one in found
    ]
    tried += [Tried(link, one, one.wins(seconds), one.error) for link, seconds, rules in vaes for one in rules]
    for sampling in samplings:
        if plans[int(sampling.link)].reuse:
            farthest = math.inf if propose(sampling, (), limit) is None else 0.0
            why_not = replay(sampling, FINEST).why_not
            one = Probed("Reuse Steps", (2.0, 2.0, 2.0), clear=True, points=1, why_not=why_not)
            tried.append(Tried(sampling.link, one, 1.0, farthest))
    return tried
