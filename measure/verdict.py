"""What the numbers of a comparison mean, in words.

No number is judged alone. A time counts as shorter only where the rounds agree; a difference between pictures is
measured against what a change of the seed does to the same picture, and what the baseline does from run to run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from ..optimizers.core.choices import HARDLY_VISIBLE, VISIBLE, looks
from ..optimizers.core.phrases import Phrase, phrase
from .evidence import LATE, Control, Evidence, share_of
from .picture import Distance
from .speedup import AS_FAST, Speedup, one_more_within

QUALITIES = ("identical", "not visible", "hardly visible", "visible", "another picture", "no picture")
"""The plain scale of what became of a picture. Farther away than another seed's is no picture,
unless a control is farther still."""

LEAST_PICTURES = 5
"""The least number of pictures from which a difference can be called small with certainty."""

_WHOLE = 0.95
"""A share from here on is 1 or more in one digit, and said as times."""


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
    return max(*shares, math.exp(min(700.0, fmean(logarithms) + one_more_within(logarithms))))


def speed_text(speedup: Speedup) -> Phrase:
    """Return the change in time, e.g. ``1.62x faster (1.58 to 1.66)``: mostly the headline."""
    ratio, low, high = speedup.ratio, speedup.low, speedup.high
    if speedup.rounds < 2:
        return phrase("{ratio:.2f}x in a single run, which cannot tell a gain from chance", ratio=ratio)
    if speedup.faster:
        return phrase("{ratio:.2f}x faster ({low:.2f} to {high:.2f})", ratio=ratio, low=low, high=high)
    if speedup.slower:
        return phrase("{ratio:.2f}x slower ({low:.2f} to {high:.2f})", ratio=1 / ratio, low=1 / high, high=1 / low)
    if speedup.same:
        return phrase(
            "No difference in time of more than {most:.0%} (between {low:.2f}x and {high:.2f}x)",
            most=AS_FAST,
            low=low,
            high=high,
        )
    if speedup.rounds < 3:
        few = speedup.rounds
        return phrase("{ratio:.2f}x in {rounds} runs, which are too few for an interval", ratio=ratio, rounds=few)
    if speedup.not_faster:
        return phrase(
            "Not faster by more than {most:.0%}: between {low:.2f}x and {high:.2f}x", most=AS_FAST, low=low, high=high
        )
    if low > 1 or high < 1:
        return phrase("Between {low:.2f}x and {high:.2f}x: not certain yet", low=low, high=high)
    return phrase("Between {low:.2f}x and {high:.2f}x: too noisy to tell", low=low, high=high)


def counted_text(work: tuple[float, float], share: float | None) -> Phrase:
    """Return the facts that a busy machine cannot change, e.g. ``40% less work, the same picture``.

    ``work``: as of ``Evidence``; ``share``: that of the farthest picture, None where another seed changes nothing.
    """
    less = 1 - work[0] / max(1.0, work[1])
    if share is None:
        return phrase("{less:.0%} less work", less=less)
    if not share:
        return phrase("{less:.0%} less work, the same picture", less=less)
    return phrase("{less:.0%} less work, difference {far} at most", less=less, far=of_a_seed_change(share))


def picture_text(evidence: Evidence, mean: float | None, share: float | None) -> str:
    """Return the change of the pictures; ``mean`` and ``share``, of the worst, are shares of a seed change."""
    if evidence.same_bits:
        return f"{'image and sound are' if evidence.sound else 'the image is'} the same bit for bit"
    if evidence.difference.rmse == 0:
        return "the saved 8-bit pictures are the same"
    if evidence.within_repeat:
        return "difference is no larger than the baseline's own from run to run"
    if share is None:
        return f"difference {evidence.difference}; another seed changes nothing here, so the difference has no scale"
    if not evidence.place:
        return f"difference is {of_a_seed_change(share)}"
    worst = f"{fraction(share)} in {evidence.place}, the worst of {evidence.pictures}"
    return f"difference is {of_a_seed_change(mean or 0.0)}, {worst}"


def all_text(evidence: Evidence, mean: float | None) -> str:
    """Return the difference of the worst picture, and of all beside it, with ``,`` before it; empty for one picture."""
    if mean is None or not evidence.place:
        return ""
    return f", and {of_a_seed_change(mean)} over all {evidence.pictures}"


def control_text(evidence: Evidence) -> str:
    """Return the nearest control in the same time, with ``;`` before it; empty where none was drawn."""
    control = evidence.control
    ratio = None if control is None else evidence.ratio(control)
    if control is None or ratio is None:
        return ""
    times = _times(ratio)
    needless = "you do not need this optimization"
    if control.kind == LATE:
        late = f"; {late_text(control, evidence.seed)}, {times} times as far"
        return f"{late}: {needless}" if evidence.as_good else late
    fewer = f"; fewer steps in the same time ({control.steps} of {control.full_steps}) would"
    if evidence.as_good:
        return f"{fewer} do as well, with {times} times the difference: {needless}"
    return f"{fewer} differ {times} times as much"


def late_text(control: Control, seed: Distance) -> Phrase:
    """Return the result of leaving out late levels, e.g. ``leaving out 2 of 8 levels gives 1.3x, ...``."""
    share = share_of(control.difference, seed)
    return phrase(
        "leaving out {left} of {steps} noise levels gives {speed:.2g}x, with a difference that is {share}",
        left=control.full_steps - control.steps,
        steps=control.full_steps,
        speed=control.speedup,
        share=str(control.difference) if share is None else of_a_seed_change(share),
    )


def of_a_seed_change(share: float) -> Phrase:
    """Return e.g. ``visible, 1/9 of a seed change``, or from about 1 on ``large, 2.4x a seed change``."""
    if share >= _WHOLE:
        return phrase("{looks}, {times}x a seed change", looks=looks(share), times=_times(max(share, 1.0)))
    return phrase("{looks}, {share} of a seed change", looks=looks(share), share=fraction(share))


def fraction(share: float) -> str:
    """Return e.g. ``1/9`` for 0.11, ``0.4`` for 0.4, ``2.4x`` for 2.4: without the unit, where it was named before."""
    if share < 0.01:
        return phrase("less than 1/100")
    if share <= 0.35:
        return f"1/{round(1 / share)}"
    return f"{share:.1g}" if share < _WHOLE else f"{_times(max(share, 1.0))}x"


def _times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"


def difference_lines(evidence: Evidence) -> list[str]:
    """Return the distance between the pictures, and the distances that it is compared with."""
    lines = [f"difference{f', {evidence.pictures} together' if evidence.place else ''}: {evidence.difference}"]
    if evidence.place:
        lines.append(f"{evidence.place}: {evidence.judged}")
    if evidence.sound is not None:
        lines.append(f"sound: {evidence.sound}")
    lines.append(f"noise floor: {'; '.join(f'{name}: {far}' for name, far in noise_floor(evidence).items())}")
    for control in evidence.controls:
        what = "late levels left out" if control.kind == LATE else "fewer steps"
        of = f"{control.steps} of {control.full_steps}, {control.seconds:.4g} s"
        lines.append(f"{what} in the same time ({of}): {control.difference}")
    return lines


def noise_floor(evidence: Evidence) -> dict[str, Distance]:
    """Return the distances that a difference is compared with, those of them that were measured."""
    floor = {"another seed": evidence.seed, "baseline repeated": evidence.repeat}
    return {name: distance for name, distance in floor.items() if distance is not None}


def in_seconds(values: Sequence[float]) -> str:
    """Return the median of seconds, and from where to where they go."""
    between = f" ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else ""
    return f"{median(values):.4g} s{between}"
