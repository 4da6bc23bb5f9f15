"""What the numbers of a comparison mean, in words.

No number is judged alone. A time counts as shorter only where the rounds agree; a difference between pictures is
measured against what a change of the seed does to the same picture, and what the baseline does from run to run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from ..optimizers.core.choices import HARDLY_VISIBLE, VISIBLE, looks
from ..optimizers.core.phrases import Phrase, phrase
from .evidence import Evidence, share_of
from .speedup import student
from .verdict_text import all_text, control_text, counted_text, picture_text, speed_text

QUALITIES = ("identical", "not visible", "hardly visible", "visible", "another picture", "no picture")
"""The plain scale of what became of a picture. Farther away than another seed's is no picture,
unless a control is farther still."""

LEAST_PICTURES = 5
"""The least number of pictures from which a difference can be called small with certainty."""


@dataclass(frozen=True)
class Verdict:
    """A judgement.

    Attributes:
        state: ``faster``, ``slower``, ``no_gain`` (as fast, another picture), ``no_effect`` (as fast, same picture),
            ``unknown`` (time: one run, too noisy, or not faster), ``suspicious`` (another picture altogether),
            ``broken`` (no picture).
        headline: one clause, which can be translated; ``text`` is all of it in one line.
        seed_share: the worst difference as a share of a seed change; None if the seed changes nothing. ``mean_share``
            is that of all pictures together.
        quality: one of ``QUALITIES``.
    """

    state: str
    headline: Phrase
    text: str
    seed_share: float | None
    quality: str = "visible"
    mean_share: float | None = None


def judge(evidence: Evidence) -> Verdict:
    """Say what the evidence means."""
    share = share_of(evidence.judged, evidence.seed)
    mean = share_of(evidence.difference, evidence.seed)
    own = share_of(evidence.repeat, evidence.seed) if evidence.repeat is not None else None
    speed, control = speed_text(evidence.speedup), control_text(evidence)
    picture, quality = picture_text(evidence, mean, share), _quality(evidence, share)

    def verdict(state: str, headline: Phrase, more: str = "") -> Verdict:
        return Verdict(state, headline, f"{headline}{more}.", share, quality, mean)

    if evidence.broken:
        return verdict("broken", phrase("{what}: something is wrong", what=evidence.broken))
    if own is not None and own > VISIBLE:
        wrong = phrase(
            "The baseline's own images from the same seed differ by {share:.2f} of a seed change: something is wrong "
            "with the baseline",
            share=own,
        )
        return verdict("suspicious", wrong, f". {speed}")
    if share is not None and share > VISIBLE:
        if _ruined(evidence, share):
            return verdict("suspicious", _ruin_text(evidence.place, share), f"{all_text(evidence, mean)}. {speed}")
        return verdict("suspicious", _other_text(evidence, share), f"{all_text(evidence, mean)}. {speed}{control}")
    if evidence.speedup.faster:
        return verdict("faster", speed, f"; {picture}{control}")
    if evidence.speedup.slower:
        return verdict("slower", speed, f"; {picture}")
    if evidence.speedup.same:
        return verdict("no_effect" if evidence.same_bits else "no_gain", speed, f"; {picture}")
    if evidence.work is not None and not evidence.speedup.clear and evidence.work[0] < evidence.work[1]:
        counted = counted_text(evidence.work, 0.0 if evidence.judged.rmse == 0 else share)
        return verdict("unknown", counted, f". {speed}; {picture}")
    return verdict("unknown", speed, f"; {picture}")


def _ruin_text(place: str, share: float) -> Phrase:
    if not place:
        return phrase("The difference is larger than a seed change ({share:.2f}): something is wrong", share=share)
    return phrase(
        "The difference of {place} is larger than a seed change ({share:.2f}): something is wrong",
        place=place,
        share=share,
    )


def _other_text(evidence: Evidence, share: float) -> Phrase:
    what = phrase("the difference of {place}", place=evidence.place) if evidence.place else phrase("the difference")
    size = phrase("a seed change") if share > 1 else phrase("half a seed change")
    return phrase(
        "Another picture: {difference} is larger than {size} ({share:.2f})", difference=what, size=size, share=share
    )


def _quality(evidence: Evidence, share: float | None) -> str:
    """Return the class of the picture. Where a seed changes nothing, one step of 8 bits is hardly visible."""
    if evidence.broken:
        return "no picture"
    if evidence.same_bits or evidence.difference.rmse == 0:
        return "identical"
    if share is not None and share > VISIBLE:
        return "no picture" if _ruined(evidence, share) else "another picture"
    if share is not None and not (evidence.within_repeat and share > HARDLY_VISIBLE):
        return str(looks(share))
    return "hardly visible" if evidence.within_repeat or evidence.judged.rmse <= 1 / 255 else "visible"


def _ruined(evidence: Evidence, share: float) -> bool:
    """Whether a picture is farther away than another seed's, and no control is farther still.

    Where one is, the seed changes little: a model that knows its pictures by heart.
    """
    return share > 1 and not any((evidence.ratio(one) or 0) > 1 for one in evidence.controls)


def settled(shares: Sequence[float]) -> bool:
    """Say whether it is clear between which limits of the plain scale the worst picture lies.

    ``shares`` are the differences of all pictures so far, as shares of a seed change. They are clear where one lies
    above the last limit, or where no limit lies between the worst and :func:`bound`.
    """
    worst = max(shares)
    if worst > VISIBLE:
        return True
    return len(shares) >= LEAST_PICTURES and not any(worst <= one < bound(shares) for one in (HARDLY_VISIBLE, VISIBLE))


def bound(shares: Sequence[float]) -> float:
    """Return the bound of one more picture's difference in 39 of 40 cases, if logarithms of differences are normal.

    Student's prediction interval. Infinite for one picture, and where some differ and others do not.
    """
    if not any(shares):
        return 0.0
    if len(shares) < 2 or not all(shares):
        return math.inf
    logarithms = [math.log(share) for share in shares]
    error = student(len(shares)) * stdev(logarithms) * math.sqrt(1 + 1 / len(shares))
    return max(*shares, math.exp(min(700.0, fmean(logarithms) + error)))
