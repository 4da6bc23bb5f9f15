"""The measurements of a comparison, from which its verdict follows."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.phrases import phrase
from .controls import FEWER
from .quality import Distance, Farthest
from .sound import SoundDistance
from .speedup import Speedup

AS_GOOD = 1.1
"""Up to so many times the difference, a control counts as doing as well."""


@dataclass(frozen=True)
class Control:
    """What the baseline draws in the time that the optimized side took, see ``controls.py``.

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
        difference: between the optimized pictures and the baseline's from the same seeds, over all of them.
        same_bits: whether what was compared was equal bit for bit in every run, beyond the 8 bits of a picture.
        seed: between the baseline's pictures from different seeds, over pairs of them.
        repeat: the largest between the baseline's own pictures from the same seed; None if none was drawn again.
        broken: what is wrong with a result that is no picture, or no sound, at all.
        controls: those that were drawn.
        farthest: the worst single picture, which is what is judged; None to judge ``difference``.
        count: how many pictures were compared, of all seeds and batches.
        frames: how many of them follow each other in each video; 1 for pictures.
        sound: how far the sound is from the baseline's, which is not judged; None without sound.
        work: evaluations that the optimized side computed for a picture, and all of them; None where not counted.
    """

    speedup: Speedup
    difference: Distance
    same_bits: bool
    seed: Distance
    repeat: Distance | None = None
    broken: str = ""
    controls: tuple[Control, ...] = ()
    farthest: Farthest | None = None
    count: int = 1
    frames: int = 1
    sound: SoundDistance | None = None
    work: tuple[float, float] | None = None

    @property
    def judged(self) -> Distance:
        return self.difference if self.farthest is None else self.farthest.alone

    @property
    def worst(self) -> int:
        """The index of the picture that is judged."""
        return 0 if self.farthest is None else self.farthest.picture - 1

    @property
    def place(self) -> str:
        """What ``judged`` is of, e.g. ``frame 3 of video 2``; empty if there is nothing to choose from."""
        if self.farthest is None or self.count == 1:
            return ""
        if self.frames == 1:
            return phrase("picture {picture}", picture=self.farthest.picture)
        video, frame = divmod(self.farthest.picture - 1, self.frames)
        place = phrase("frame {frame}", frame=frame + 1)
        return place if self.count == self.frames else phrase("{frame} of video {video}", frame=place, video=video + 1)

    @property
    def pictures(self) -> str:
        """How many were compared, e.g. ``5 pictures``."""
        return f"{self.count} {'picture' if self.frames == 1 else 'frame'}{'' if self.count == 1 else 's'}"

    @property
    def one_region(self) -> bool:
        """Whether a region of the picture differs more than a seed change does on average."""
        return self.farthest is not None and 0 < self.seed.rmse < self.farthest.region

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
        return share_of(control.difference, self.difference)

    @property
    def as_good(self) -> bool:
        """Whether a control does as well, so that the optimization is not needed."""
        ratio = None if self.control is None else self.ratio(self.control)
        return ratio is not None and ratio <= AS_GOOD


def share_of(difference: Distance, whole: Distance) -> float | None:
    """Return the first distance as a share of the second; None where that is 0."""
    return difference.rmse / whole.rmse if whole.rmse else None
