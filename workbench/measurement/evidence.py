"""What a comparison has measured: the numbers that a verdict is made from."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.phrases import phrase
from .farthest import Farthest
from .quality import Distance
from .sound import SoundDistance
from .timing import Speedup


@dataclass(frozen=True)
class FewerSteps:
    """The control: the baseline with as many steps as fit into the time that the optimized side took.

    ``full_steps`` are those of the compared runs, ``seconds`` of its sampling; ``difference`` is between its
    pictures and the baseline's with all steps, from the same seed.
    """

    steps: int
    full_steps: int
    seconds: float
    difference: Distance


@dataclass(frozen=True)
class Evidence:
    """What was measured.

    Attributes:
        difference: the largest between the optimized pictures of a run and the baseline's, from the same seed.
        same_bits: whether what was compared was equal bit for bit in every run, beyond the 8 bits of a picture.
        seed: between the baseline's pictures and its own from another seed.
        repeat: the largest between the baseline's own pictures from the same seed; None if it ran once.
        precision: between the baseline's pictures and its own computed in fp32; None if that was not drawn.
        broken: what is wrong with a result that is no picture at all; ``broken_sound`` likewise.
        difference_run: the run that ``difference`` is of; None if all optimized runs drew the same.
        fewer_steps: the control; None if it was not drawn.
        farthest: the worst single picture, which is what is judged; None to judge ``difference``.
        difference_picture: its number; None if there is only one picture.
        frames: how many pictures follow each other in each of the ``videos``; 1 for pictures.
        sound: how far the sound is from the baseline's; None without sound.
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
    frames: int = 1
    videos: int = 1
    sound: SoundDistance | None = None
    broken_sound: str = ""

    @property
    def judged(self) -> Distance:
        return self.difference if self.farthest is None else self.farthest.alone

    @property
    def place(self) -> str:
        """What ``judged`` is of, e.g. ``frame 3 in run 2``; empty if there is nothing to choose from."""
        run, picture = self.difference_run, self.difference_picture
        if picture is None:
            return "" if run is None else phrase("run {run}", run=run)
        if self.frames > 1:
            video, frame = divmod(picture - 1, self.frames)
            place = phrase("frame {frame}", frame=frame + 1)
            if self.videos > 1:
                place = phrase("{frame} of video {video}", frame=place, video=video + 1)
        else:
            place = phrase("picture {picture}", picture=picture)
        return place if run is None else phrase("{place} in run {run}", place=place, run=run)

    @property
    def one_region(self) -> bool:
        """Whether a region of the picture differs more than a seed change does on average."""
        return self.farthest is not None and 0 < self.seed.rmse < self.farthest.region

    @property
    def within_repeat(self) -> bool:
        """Whether the difference is no larger than the baseline's own from run to run."""
        return self.repeat is not None and 0 < self.judged.rmse <= self.repeat.rmse

    @property
    def control_ratio(self) -> float | None:
        """How many times the difference the control has; None without a control or without a difference."""
        return None if self.fewer_steps is None else share_of(self.fewer_steps.difference, self.difference)[0]


def share_of(difference: Distance, whole: Distance) -> tuple[float | None, str]:
    """Return one distance as a share of the other, by LPIPS where both have it."""
    if difference.lpips is not None and whole.lpips:
        return difference.lpips / whole.lpips, "LPIPS"
    return (difference.rmse / whole.rmse if whole.rmse else None), "RMSE"
