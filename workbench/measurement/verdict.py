"""What the numbers of a comparison mean, in words.

No number is judged alone. A time counts as shorter only where the rounds agree; a difference between pictures is
measured against what a change of the seed does to the same picture, and what the baseline does from run to run.
"""

from __future__ import annotations

from dataclasses import dataclass

from .farthest import Farthest
from .quality import Distance
from .timing import SAME, Speedup

AS_GOOD = 1.1
"""Up to so many times the difference, fewer steps count as doing as well."""

TOO_FAR = 0.5
"""Share of a seed change from which on a difference is not called the price of speed any more."""

HARDLY_VISIBLE = 0.1
"""Share of a seed change up to which a difference is called hardly visible."""

QUALITIES = ("identical", "hardly visible", "visible", "another picture", "no picture")
"""The plain scale of what became of a picture. Farther away than another seed's is no picture,
unless fewer steps in the same time would be farther still."""


@dataclass(frozen=True)
class FewerSteps:
    """The control: the baseline with as many steps as fit into the time that the optimised side took.

    Attributes:
        steps: so many.
        full_steps: of the compared runs.
        seconds: that its sampling took.
        difference: between its pictures and the baseline's with all steps, from the same seed.
    """

    steps: int
    full_steps: int
    seconds: float
    difference: Distance

    def ratio(self, other: Distance) -> float | None:
        """Return how many times as far it is from the baseline as something else; None if that is not far at all."""
        return _share(self.difference, other)[0]


@dataclass(frozen=True)
class Evidence:
    """What was measured.

    Attributes:
        speedup: of the optimised side.
        difference: the largest between the optimised pictures of a run and the baseline's, from the same seed.
        same_bits: whether what was compared was equal bit for bit in every run, beyond the 8 bits of a picture.
        seed: between the baseline's pictures and its own from another seed.
        repeat: the largest between the baseline's pictures and its own from the same seed; None if it ran once.
        precision: between the baseline's pictures and its own computed in fp32; None if that was not drawn.
        broken: what is wrong with a result that is no picture at all.
        difference_run: number of the run that ``difference`` is of; None if all optimised runs drew the same.
        repeat_run: number of the run that ``repeat`` is of.
        fewer_steps: the control; None if it was not drawn.
        farthest: the worst single picture, which is what is judged; None to judge ``difference``.
        difference_picture: its number; None if there is only one picture.
    """

    speedup: Speedup
    difference: Distance
    same_bits: bool
    seed: Distance
    repeat: Distance | None = None
    precision: Distance | None = None
    broken: str = ""
    difference_run: int | None = None
    repeat_run: int = 2
    fewer_steps: FewerSteps | None = None
    farthest: Farthest | None = None
    difference_picture: int | None = None

    @property
    def judged(self) -> Distance:
        """The distance that is judged."""
        return self.difference if self.farthest is None else self.farthest.alone

    @property
    def place(self) -> str:
        """What ``judged`` is of, e.g. ``picture 3 in run 2``; empty if there is nothing to choose from."""
        run = f"run {self.difference_run}" if self.difference_run is not None else ""
        picture = f"picture {self.difference_picture}" if self.difference_picture is not None else ""
        return " in ".join(part for part in (picture, run) if part)

    @property
    def one_region(self) -> bool:
        """Whether a region of the picture differs more than a seed change does on average."""
        return self.farthest is not None and 0 < self.seed.rmse < self.farthest.region

    @property
    def control_ratio(self) -> float | None:
        """How many times the difference the control has; None without a control or without a difference."""
        return None if self.fewer_steps is None else self.fewer_steps.ratio(self.difference)


@dataclass(frozen=True)
class Verdict:
    """A judgement.

    Attributes:
        state: ``faster``, ``slower``, ``no_gain`` (as fast, another picture), ``no_effect`` (as fast, same picture),
            ``unknown`` (time: one run, or too noisy), ``suspicious`` (another picture altogether), ``broken`` (no
            picture).
        headline: the main finding, one clause.
        text: all of it, one line.
        seed_share: the difference as a share of a seed change; None if the seed changes nothing.
        measure: what that share is of, ``LPIPS`` or ``RMSE``.
        quality: what became of the picture, one of ``QUALITIES``.
    """

    state: str
    headline: str
    text: str
    seed_share: float | None
    measure: str
    quality: str = "visible"


def judge(evidence: Evidence) -> Verdict:
    """Say what the evidence means."""
    share, measure = _share(evidence.judged, evidence.seed)
    own = _share(evidence.repeat, evidence.seed)[0] if evidence.repeat is not None else None
    of_run = f" of {evidence.place}" if evidence.place else ""
    speed = _speed_text(evidence.speedup)
    picture = _picture_text(evidence, share)

    def verdict(state: str, headline: str, more: str) -> Verdict:
        return Verdict(state, headline, headline + more, share, measure, _quality(evidence, share))

    if evidence.broken:
        return verdict("broken", f"{evidence.broken}: something is wrong", ".")
    if own is not None and own > TOO_FAR:
        wrong = f"The baseline's own images differ by {own:.2f} of a seed change in run {evidence.repeat_run}"
        return verdict("suspicious", f"{wrong}: something is wrong with the baseline", f". {_start(speed)}.")
    if share is not None and share > TOO_FAR:
        if _ruined(evidence, share):
            wrong = f"The difference{of_run} is larger than a seed change ({share:.2f}): something is wrong"
            return verdict("suspicious", wrong, f". {_start(speed)}.")
        size = "a seed change" if share > 1 else "half a seed change"
        other = f"Another picture: the difference{of_run} is larger than {size} ({share:.2f})"
        return verdict("suspicious", other, f". {_start(speed)}{_control_text(evidence)}.")
    if evidence.speedup.faster:
        return verdict("faster", speed, f"; {picture}{_control_text(evidence)}.")
    if evidence.speedup.slower:
        return verdict("slower", speed, f"; {picture}.")
    if evidence.speedup.same:
        return verdict("no_effect" if evidence.same_bits else "no_gain", _start(speed), f"; {picture}.")
    return verdict("unknown", _start(speed), f"; {_more(evidence.speedup)}; {picture}.")


def fraction(share: float) -> str:
    """Return e.g. ``1/9`` for 0.11, ``0.4`` for 0.4."""
    if share < 0.01:
        return "less than 1/100"
    return f"1/{round(1 / share)}" if share <= 0.35 else f"{share:.1g}"


def _share(difference: Distance, whole: Distance) -> tuple[float | None, str]:
    """Return one distance as a share of the other, by LPIPS where both have it."""
    if difference.lpips is not None and whole.lpips:
        return difference.lpips / whole.lpips, "LPIPS"
    return (difference.rmse / whole.rmse if whole.rmse else None), "RMSE"


def _quality(evidence: Evidence, share: float | None) -> str:
    """Return what became of the picture. Where a seed changes nothing, one step of 8 bits is hardly visible."""
    if evidence.broken:
        return "no picture"
    if evidence.same_bits or evidence.difference.rmse == 0:
        return "identical"
    if share is not None and share > TOO_FAR:
        return "no picture" if _ruined(evidence, share) else "another picture"
    small = evidence.judged.rmse <= 1 / 255 if share is None else share <= HARDLY_VISIBLE and not evidence.one_region
    return "hardly visible" if small or _within_repeat(evidence) else "visible"


def _ruined(evidence: Evidence, share: float) -> bool:
    """Whether a picture is farther away than another seed's, and fewer steps in the same time would be nearer.

    Where fewer steps are farther still, the seed changes little: a model that knows its pictures by heart.
    """
    return share > 1 and (evidence.control_ratio is None or evidence.control_ratio <= 1)


def _within_repeat(evidence: Evidence) -> bool:
    return evidence.repeat is not None and 0 < evidence.judged.rmse <= evidence.repeat.rmse


def _speed_text(speedup: Speedup) -> str:
    if speedup.rounds < 2:
        return f"{speedup.ratio:.2f}x in a single run, which cannot tell a gain from chance"
    if speedup.faster:
        return f"{speedup.ratio:.2f}x faster ({speedup.low:.2f} to {speedup.high:.2f})"
    if speedup.slower:
        return f"{1 / speedup.ratio:.2f}x slower ({1 / speedup.high:.2f} to {1 / speedup.low:.2f})"
    if speedup.same:
        return f"no difference in time of more than {SAME:.0%} (between {speedup.low:.2f}x and {speedup.high:.2f}x)"
    if speedup.rounds < 3:
        return f"{speedup.ratio:.2f}x in {speedup.rounds} runs, which are too few for an interval"
    between = f"between {speedup.low:.2f}x and {speedup.high:.2f}x"
    if speedup.low > 1 or speedup.high < 1:
        return f"{between}: not certain yet"
    return f"{between}: too noisy to tell"


def _more(speedup: Speedup) -> str:
    more = speedup.more_rounds
    if more is None:
        return "close other programs or use more steps, as more runs alone would be too many"
    return f"{more} more {'run' if more == 1 else 'runs'} would tell"


def _picture_text(evidence: Evidence, share: float | None) -> str:
    if evidence.same_bits:
        return "the image is the same bit for bit"
    if evidence.difference.rmse == 0:
        return "the pictures are the same in all of their 8 bits"
    if _within_repeat(evidence):
        return "difference is no larger than the baseline's own from run to run"
    if share is None:
        nothing = "another seed changes nothing here, so there is nothing to compare it with"
        return f"difference {evidence.difference}; {nothing}"
    of_run = f" in {evidence.place}, the farthest" if evidence.place else ""
    text = f"difference is {fraction(share)} of a seed change{of_run}"
    if evidence.one_region:
        text += ", but one region differs more than another seed's picture would"
    if evidence.precision is not None and evidence.difference.rmse <= evidence.precision.rmse:
        text += ", and smaller than what rounding does to the baseline"
    return text


def _control_text(evidence: Evidence) -> str:
    control, ratio = evidence.fewer_steps, evidence.control_ratio
    if control is None or ratio is None:
        return ""
    times = f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
    fewer = f"; fewer steps in the same time ({control.steps} of {control.full_steps})"
    if ratio > AS_GOOD:
        return f"{fewer} would differ {times} times as much"
    return f"{fewer} would do as well, with {times} times the difference: you do not need this optimisation"


def _start(text: str) -> str:
    return text[:1].upper() + text[1:]
