"""The measurements of a comparison, from which its verdict follows, and the controls among them.

A control is what the plain model draws in the optimized side's time, without any node. It can take fewer steps, or
leave some late noise levels of the same schedule out, which is mostly nearer: fewer steps move the early levels too,
and these decide the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..optimizers.core.choices import unit
from ..optimizers.core.phrases import phrase
from .drawn import SoundDistance
from .picture import Distance, average
from .speedup import Speedup

LATE, FEWER = "late_levels", "fewer_steps"
CONTROLS = (FEWER, LATE)
"""With a sampler that takes no levels, only a number of steps, both are the same: then the first counts."""

TOO_LONG = 1.25
"""Above so many times the optimized side's time a control is dropped."""

_NEARLY = 0.05
"""Part of a step's time that may be missing for the step to count as fitting."""


def steps_that_fit(steps: int, whole: float, each: float, allowed: float) -> int:
    """Return how many steps take no longer than ``allowed``: at least 0 and fewer than ``steps``.

    All in seconds: ``whole`` is what all ``steps`` take, ``each`` what one of them but the first does. What a run does
    before and during its first step is paid once.
    """
    first = whole - each * (steps - 1)
    fit = (allowed - first) / each + _NEARLY if each else -1.0
    return min(1 + int(fit), steps - 1) if fit >= 0 else 0


def kept_levels(steps: int, kept: int) -> list[int] | None:
    """Return which ``kept`` of ``steps`` noise levels are evaluated where late ones are left out.

    Left out is every second one from the third last backwards; of less than 6, which all decide the picture but the
    last ones, as many evenly over the last half. None where there are not so many, or none is left out.
    """
    left, half = steps - kept, steps // 2
    out = {steps - 3 - 2 * number for number in range(left)}
    if steps < 6:
        out = {steps - half + int((number + 0.5) * half / left) for number in range(left)}
    possible = len(out) == left and min(out, default=0) > 0
    return [level for level in range(steps) if level not in out] if possible else None


AS_GOOD = 1.1
"""Up to so many times the difference, a control counts as doing as well."""


@dataclass(frozen=True)
class Control:
    """What the baseline draws in the time that the optimized side took.

    Attributes:
        kind: one of ``CONTROLS``.
        steps: as many are taken, or levels evaluated.
        full_steps: of the compared runs.
        seconds: of its sampling.
        speedup: how many times as fast as the baseline that is.
        difference: between its pictures and the baseline's with all steps, from the same seeds.
    """

    kind: str
    steps: int
    full_steps: int
    seconds: float
    speedup: float
    difference: Distance

    @property
    def title(self) -> str:
        return f"{self.steps} steps" if self.kind == FEWER else f"{self.steps} of {self.full_steps} levels"


@dataclass(frozen=True)
class Evidence:
    """All measurements of one comparison.

    Attributes:
        distances: of each optimized picture to the baseline's from the same seed.
        same_bits: whether what was compared was equal bit for bit in every run, beyond the 8 bits of a picture.
        seed: between the baseline's pictures from different seeds, over pairs of them.
        repeat: the largest between the baseline's own pictures from the same seed; None if none was drawn again.
        broken: what is wrong with a result that is no picture, or no sound, at all.
        controls: those that were drawn.
        frames: how many of them follow each other in each video; 1 for pictures.
        sound: how far the sound is from the baseline's, which is not judged; None without sound.
        work: evaluations that the optimized side computed for a picture, and all of them; None where not counted.
    """

    speedup: Speedup
    distances: Sequence[Distance]
    same_bits: bool
    seed: Distance
    repeat: Distance | None = None
    broken: str = ""
    controls: tuple[Control, ...] = ()
    frames: int = 1
    sound: SoundDistance | None = None
    work: tuple[float, float] | None = None

    @cached_property
    def difference(self) -> Distance:
        """That of all pictures together."""
        return average(self.distances)

    @property
    def count(self) -> int:
        """How many pictures were compared, of all seeds and batches."""
        return len(self.distances)

    @property
    def worst(self) -> int:
        """The index of the picture that is farthest, which is judged: an average would hide a single fault."""
        return max(range(self.count), key=lambda one: self.distances[one].rmse)

    @property
    def judged(self) -> Distance:
        return self.distances[self.worst]

    @property
    def place(self) -> str:
        """What ``judged`` is of, e.g. ``frame 3 of video 2``; empty if there is nothing to choose from."""
        if self.count == 1:
            return ""
        if self.frames == 1:
            return phrase("picture {picture}", picture=self.worst + 1)
        video, frame = divmod(self.worst, self.frames)
        place = phrase("frame {frame}", frame=frame + 1)
        return place if self.count == self.frames else phrase("{frame} of video {video}", frame=place, video=video + 1)

    @property
    def pictures(self) -> str:
        """How many were compared, e.g. ``5 pictures``."""
        return f"{self.count} {'picture' if self.frames == 1 else 'frame'}{'' if self.count == 1 else 's'}"

    @property
    def within_repeat(self) -> bool:
        """Whether the difference is no larger than the baseline's own from run to run."""
        return self.repeat is not None and 0 < self.judged.rmse <= self.repeat.rmse

    @property
    def control(self) -> Control | None:
        """The control that counts: the nearest."""
        return min(self.controls, key=lambda one: one.difference.rmse, default=None)

    def ratio(self, control: Control) -> float | None:
        """Return how many times the difference a control has; None without a difference."""
        return control.difference.rmse / self.difference.rmse if self.difference.rmse else None

    @property
    def as_good(self) -> bool:
        """Whether a control does as well, so that the optimization is not needed."""
        ratio = None if self.control is None else self.ratio(self.control)
        return ratio is not None and ratio <= AS_GOOD


def share_of(difference: Distance, seed: Distance) -> float | None:
    """Return a distance as a share of a seed change; None where that is 0, of pictures without any contrast."""
    one = unit(seed.rmse, seed.contrast)
    return difference.rmse / one if one else None
