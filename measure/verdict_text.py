"""The sentences of a verdict, and the measurements as lines of text below it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ..optimizers.core.choices import looks
from ..optimizers.core.phrases import Phrase, phrase
from .evidence import LATE, Control, Evidence, share_of
from .quality import Distance
from .speedup import AS_FAST, Speedup

_WHOLE = 0.95
"""A share from here on is 1 or more in one digit, and said as times."""


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
        nothing = "another seed changes nothing here, so the difference has no scale"
        return f"difference {evidence.difference}; {nothing}"
    if evidence.place:
        text = f"difference is {of_a_seed_change(mean or 0.0)}"
        text += f", {fraction(share)} in {evidence.place}, the worst of {evidence.pictures}"
    else:
        text = f"difference is {of_a_seed_change(share)}"
    return text


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
        return f"; {late_text(control, evidence.seed)}, " + (
            f"with {times} times the difference: {needless}" if evidence.as_good else f"{times} times as far"
        )
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
