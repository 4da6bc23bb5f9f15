"""The videos and words of the icon model's sibling: the shapes of icon_data.py, drawn anew, on the move.

A caption names colour, shape and motion, e.g. "red heart left". Place, size, speed, angle and the exact tint are not in
it. The form is that of icon_data.py with frames: premultiplied RGBA in [-1, 1], ``[batch, 4, frames, side, side]``.
"""

from __future__ import annotations

from pathlib import Path

import icon_data
import torch
from icon_data import Nuisance
from torch import Tensor

FRAMES = 8
STRONGER = 2.0
"""How many times as strong noise has to be to hide as much of a video as of one of its frames."""
SHAPES = ("heart", "star", "house", "fish", "moon", "umbrella", "key", "cloud")
MOTIONS = ("left", "right", "up", "down", "turn", "grow")


def combinations() -> tuple[list[str], list[str]]:
    """Return the captions to train on, and those held out."""
    return icon_data.combinations(SHAPES, MOTIONS)


class Motions(icon_data.Icons):
    """Draws captions; arguments as of ``Icons``."""

    def __init__(self, cache: Path, side: int, device: torch.device | str = "cpu") -> None:
        super().__init__(cache, side, device)
        self.captions, self.held_out = combinations()

    def drawings(self, captions: list[str], frames: int = FRAMES) -> Tensor:
        """Return a video for each caption ``[batch, 4, frames, side, side]``, all else drawn by chance.

        A single frame is from anywhere in it.
        """
        with self.device:
            return self._moving(captions, frames)

    def _moving(self, captions: list[str], frames: int) -> Tensor:
        count = len(captions)
        # From -1 in the first frame to 1 in the last one.
        when = torch.linspace(-1, 1, FRAMES).expand(count, FRAMES)
        if frames == 1:
            when = torch.rand(count, 1) * 2 - 1
        u = torch.rand(6, count, 1) * 2 - 1
        motion = [caption.split()[2] for caption in captions]

        def those(*names: str) -> Tensor:
            return torch.tensor([name in names for name in motion])[:, None]

        size = self.side * (0.27 + 0.04 * u[0]) * torch.where(those("grow"), 1 + 0.35 * when, torch.ones_like(when))
        reach = self.side * (0.17 + 0.04 * u[1])  # half of the way
        way = (those("right").float() - those("left").float(), those("down").float() - those("up").float())
        largest = size.amax(1, keepdim=True)
        at = [
            (self.side / 2 - 1.02 * largest - reach * one.abs()).clamp_min(0) * free + reach * one * when
            for one, free in zip(way, (u[2], u[3]), strict=True)
        ]
        angle = 0.3 * u[4] + torch.where(those("turn"), 1.1 * when, torch.zeros_like(when))
        tint = u[5].expand_as(when)
        nuisance = Nuisance(*(value.reshape(-1) for value in (size, angle, *at, torch.zeros_like(when), tint)))
        still = [f"{caption.rsplit(maxsplit=1)[0]} flat" for caption in captions for _ in range(when.shape[1])]
        return self.draw(still, nuisance).unflatten(0, (count, -1)).transpose(1, 2)
