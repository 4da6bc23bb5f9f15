"""The videos and words of the icon model's sibling: the shapes of icon_data.py, drawn anew, on the move.

A caption names colour, shape and motion, e.g. "red heart left". Place, size, speed, angle and the exact tint are not in
it. The form is that of icon_data.py with frames: premultiplied RGBA in [-1, 1], ``[batch, 4, frames, side, side]``.
"""

from __future__ import annotations

from pathlib import Path

import torch
from icon_data import CREDIT, HUES, Icons, Nuisance
from torch import Tensor

FRAMES = 8
STRONGER = 2.0
"""How many times as strong noise has to be to hide as much of a video as of one of its frames."""
SHAPES = ("heart", "star", "house", "fish", "moon", "umbrella", "key", "cloud")
MOTIONS = ("left", "right", "up", "down", "turn", "grow")


def combinations() -> tuple[list[str], list[str]]:
    """Return the captions to train on, and those held out: one in eight, never a whole colour, shape or motion."""
    trained: list[str] = []
    held_out: list[str] = []
    for i, shape in enumerate(SHAPES):
        for j, hue in enumerate(HUES):
            for k, motion in enumerate(MOTIONS):
                (held_out if (i + j + 2 * k) % 8 == 0 else trained).append(f"{hue} {shape} {motion}")
    return trained, held_out


class Motions:
    """Draws captions.

    Args:
        cache: folder for the npm package of the shapes.
        side: of the frames, in pixels.
        device: that draws.
    """

    credit = CREDIT

    def __init__(self, cache: Path, side: int, device: torch.device | str = "cpu") -> None:
        self.side = side
        self.captions, self.held_out = combinations()
        self._icons = Icons(cache, side, device)

    def batch(self, count: int, frames: int = FRAMES) -> tuple[Tensor, list[str]]:
        """Return videos, or single frames ``[count, 4, 1, side, side]`` of them, and their captions."""
        captions = [self.captions[number] for number in torch.randint(len(self.captions), (count,)).tolist()]
        return self.drawings(captions, frames), captions

    def drawings(self, captions: list[str], frames: int = FRAMES) -> Tensor:
        """Return a video, or a single frame, for each caption, all else drawn by chance."""
        with self._icons.device:
            return self.draw(captions, frames)

    def shown(self, count: int) -> list[str]:
        """Return captions that are worth a look; every second one was held out."""
        half = max(1, count // 2)
        seen, unseen = (found[:: max(1, len(found) // half)] for found in (self.captions, self.held_out))
        pairs = zip(seen, unseen, strict=False)
        return [caption for pair in pairs for caption in pair][:count]

    def draw(self, captions: list[str], frames: int = FRAMES, generator: torch.Generator | None = None) -> Tensor:
        """Return one video for each caption ``[batch, 4, frames, side, side]``; of one frame, from anywhere in it."""
        count = len(captions)
        # From -1 in the first frame to 1 in the last one.
        when = torch.linspace(-1, 1, FRAMES).expand(count, FRAMES)
        if frames == 1:
            when = torch.rand(count, 1, generator=generator) * 2 - 1
        u = torch.rand(6, count, 1, generator=generator) * 2 - 1
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
        return self._icons.draw(still, nuisance).unflatten(0, (count, -1)).transpose(1, 2)
