"""The answer: which nodes to insert, and what is expected of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...measure.expect import FINEST, GAIN, Expected, Probed, Range, expect, pays_from, propose, speedup
from ...measure.replay import Sampling, replay
from ...optimizers.core.phrases import Phrase
from ...optimizers.in_comfyui.run.reporting import Payload
from ..apply_recipe import shown_steps
from .plan import Plan
from .prompts import FEWEST, PICTURES, Chosen
from .sentences import Tried, expected_parts, expected_speed, told


@dataclass(frozen=True)
class Part:
    """The steps of a sampler, or what a VAE decoded, which has no ``sampling``.

    ``link`` is the number of its plan, ``seconds`` it took, and ``probed`` has what each candidate is worth.
    """

    link: str
    seconds: float
    probed: list[Probed]
    sampling: Sampling | None = None


@dataclass(frozen=True)
class Offer:
    """Nodes to insert, with what is expected of them.

    ``run_speedup`` is of the whole run, ``sampling_speedup`` of its steps alone, ``decoding_speedup`` of what a VAE
    decodes, as times faster; None where that is not changed. ``distance`` is a share of what another seed changes;
    ``sampling_seconds`` are those of the steps today. ``names`` are the titles of the nodes. ``once`` are seconds that
    it costs once, ``won`` those that it wins for each picture.
    """

    label: str
    names: frozenset[str]
    chosen: Chosen
    run_speedup: Range
    sampling_speedup: Range | None
    decoding_speedup: Range | None
    distance: Range
    sampling_seconds: float
    once: float
    won: float

    @property
    def expected(self) -> Phrase:
        return expected_speed(self.run_speedup, self.once, self.won)

    @property
    def payload(self) -> Payload:
        """``Offer`` in web/js/payloads.d.ts. A proof measures steps: of a VAE alone there is none."""
        steps = self.sampling_speedup
        each = 0.0 if steps is None else self.sampling_seconds * (1 + 2 / steps.likely)
        return {
            "label": self.label,
            "expected": told(self.expected),
            "about": told(expected_parts(self.run_speedup, steps, self.decoding_speedup, self.distance)),
            "sampling_speedup": [*(steps or (1.0, 1.0, 1.0))],
            "proof_seconds": [seeds * each for seeds in (FEWEST, PICTURES)] if each else [],
            "proof_pictures": 2 * FEWEST,
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
    parts: Sequence[Part], plans: Sequence[Plan], limit: float, run_seconds: float, pictures: int
) -> Offer | None:
    """Return the fastest of what stays inside of a limit; None where it is not certainly faster, or pays too late.

    ``pictures``: in so many it has to win back what it costs once.
    """
    chosen, expected, labels, names, once = [], list[tuple[Part, Expected]](), list[str](), set[str](), 0.0
    for number, plan in enumerate(plans):
        own = [_paying(part, pictures) for part in parts if part.link == str(number)]
        proposed = [(part.seconds, propose(part.sampling, part.probed, limit, plan.reuse)) for part in own]
        best = [(seconds, proposal) for seconds, proposal in proposed if proposal is not None]
        # Several samplers on a link share its nodes: those of the longest, and the most careful budget.
        own_names = max(best, key=lambda pair: pair[0])[1].names if best else ()
        budget = min((proposal.budget for _, proposal in best if proposal.budget is not None), default=None)
        for part in own:
            used = [each for each in part.probed if each.name in own_names]
            expected.append((part, expect(part.sampling, used, budget)))
        if best:
            tried = [each for part in own for each in part.probed]
            once += sum(max(each.once for each in tried if each.name == name) for name in own_names)
            names |= {*own_names, *(() if budget is None else ("Reuse Steps",))}
            chosen.append((plan.link, plan.nodes(own_names, budget)))
            labels.append(" + ".join([*own_names, *(() if budget is None else (f"Reuse Steps {budget:g}",))]))
    if not chosen:
        return None
    run_speedup = speedup(run_seconds, [(part.seconds, found.time_left) for part, found in expected])
    sampled, decoded = ([one for one in expected if bool(one[0].sampling) == drawn] for drawn in (True, False))
    offer = Offer(
        "; ".join(dict.fromkeys(labels)),
        frozenset(names),
        chosen,
        run_speedup,
        _speedup(sampled) if any(link.input == "model" for link, _ in chosen) else None,
        _speedup(decoded) if any(link.input == "vae" for link, _ in chosen) else None,
        Range(*map(math.hypot, _farthest(sampled), _farthest(decoded))),
        sum(part.seconds for part, _ in sampled),
        once,
        run_seconds * (1 - 1 / run_speedup.likely),
    )
    return None if run_speedup.low < GAIN or pays_from(once, offer.won) > pictures else offer


def _paying(part: Part, pictures: int) -> Part:
    """Return a part with those candidates that win back in so many pictures what they cost once."""
    return replace(part, probed=[one for one in part.probed if pays_from(one.once, one.wins(part.seconds)) <= pictures])


def _speedup(expected: Sequence[tuple[Part, Expected]]) -> Range:
    """Return how many times faster some parts get together."""
    parts = [(part.seconds, found.time_left) for part, found in expected]
    return speedup(sum(seconds for seconds, _ in parts), parts)


def _farthest(expected: Sequence[tuple[Part, Expected]]) -> Range:
    return Range(*(max((found.distance[end] for _, found in expected), default=0.0) for end in range(3)))


def what_became(parts: Sequence[Part], plans: Sequence[Plan], limit: float) -> list[Tried]:
    """Return the result of each candidate of each sampler and VAE."""
    tried = [
        Tried(part.link, one, one.wins(part.seconds), expect(part.sampling, [one]).distance.high)
        for part in parts
        for one in part.probed
    ]
    for part in parts:
        if part.sampling and plans[int(part.link)].reuse:
            farthest = math.inf if propose(part.sampling, (), limit) is None else 0.0
            why_not = replay(part.sampling, FINEST).why_not
            one = Probed("Reuse Steps", (2.0, 2.0, 2.0), clear=True, points=1, why_not=why_not)
            tried.append(Tried(part.link, one, 1.0, farthest))
    return tried
