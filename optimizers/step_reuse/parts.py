"""The parts of a latent that are judged one by one: a mean over all of it hides a ruined frame, or the sound.

A host says which they are. Root mean squares are taken of each; the worst part decides, which also bounds the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..models.samplers import Place

Split = Callable[[Tensor], Sequence[Tensor]]
"""From a tensor of the latent's shape to its streams, ``[batch, frames, ...]`` each, 1 frame if it is no video."""


SOFT = 0.25
"""Part of what is drawn anew that a mask blends with what is kept, above which it is soft."""

ANSWER = -4.0
"""To such blends of two pictures a network with guidance can answer with so many times an error in them, the other way
round (measured on the icon model). Solvers of second order then swing about their way ever farther."""


@dataclass(frozen=True)
class Blend:
    """What a mask does to a prediction before it reaches the solver: ``share`` of it and the rest of ``kept``.

    Both are of the latent's shape; the share is from 0 to 1.
    """

    share: Tensor
    kept: Tensor

    def soft(self) -> Tensor:
        """Return which part of what is drawn anew is blended with what is kept, 0-dim."""
        free = self.share > 0.0
        return (free & (self.share < 1.0)).float().sum() / free.float().sum().clamp(min=1.0)

    def lasting(self, place: Place, levels: Sequence[float], noise: Callable[[float], float]) -> Tensor:
        """Return how much of a difference of the prediction at a place is still in the latent when the run ends.

        A step that leaves the part ``k`` of the noise keeps the part ``k`` of the latent, and takes the rest from a
        prediction. At low noise that is its input, of which a share ``m`` is the latent, and a share ``m`` of it goes
        back: ``k + (1 - k) m ** 2`` is left in each step, about ``k ** (1 - m ** 2)``. ``noise`` gives the noise level
        of a latent in which the picture has its own size; ``levels`` are all of the schedule.
        """
        if place.ahead <= 0:
            return self.share
        back, clean = self.share.square(), levels[-1] <= 0
        left = min(noise(levels[-2 if clean else -1]) / noise(place.ahead), 1.0)
        return self.share * left ** (1.0 - back) * (back if clean else 1.0)


def undivided(latent: Tensor) -> Sequence[Tensor]:
    """Return a latent as one stream of one frame."""
    return [latent.unsqueeze(1)]


def rms(streams: Sequence[Tensor]) -> Tensor:
    """Return the root mean square of each item's parts, ``[batch * parts]``."""
    return torch.cat([_squares(stream) for stream in streams], 1).sqrt().flatten()


def stream_rms(streams: Sequence[Tensor]) -> Tensor:
    """Return the same of whole streams, in the place of each of their frames: some frames every seed draws alike."""
    squares = [_squares(stream) for stream in streams]
    return torch.cat([each.mean(1, keepdim=True).expand_as(each) for each in squares], 1).sqrt().flatten()


def contrast(streams: Sequence[Tensor]) -> Tensor:
    """Return the standard deviation of whole streams, in the place of each of their frames."""
    spread = [stream.flatten(1).std(1, correction=0)[:, None].expand(stream.shape[:2]) for stream in streams]
    return torch.cat(spread, 1).flatten()


def _squares(stream: Tensor) -> Tensor:
    return stream.square().mean(tuple(range(2, stream.ndim)))


def split_for(shapes: Sequence[Sequence[int]], mask: Tensor | None = None) -> Split:
    """Return the splitter of a latent of these ``shapes``, packed to ``[batch, 1, elements]`` if they are several.

    What a ``mask``, of the latent's shape, keeps as it is (a given frame, a given sound) is left out: the sampler puts
    it back in each step, and networks are not trained to say anything about it.
    """
    free = [None] * len(shapes) if mask is None else [_free(stream) for stream in _streams(mask, shapes)]
    if all(frames is not None and not len(frames) for frames in free):
        free = [None] * len(shapes)

    def split(latent: Tensor) -> list[Tensor]:
        both = zip(_streams(latent, shapes), free, strict=True)
        return [
            stream if frames is None else stream[:, frames] for stream, frames in both if frames is None or len(frames)
        ]

    return split


def _streams(latent: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    flat = latent.flatten(1).split([prod(shape[1:]) for shape in shapes], 1)
    streams = [part.unflatten(1, tuple(shape[1:])) for part, shape in zip(flat, shapes, strict=True)]
    # [batch, channels, frames, height, width]
    return [stream.movedim(2, 1) if stream.ndim == 5 else stream.unsqueeze(1) for stream in streams]


def _free(mask: Tensor) -> Tensor | None:
    """Return the numbers of the frames that are drawn at least in part; None for all."""
    free = (mask > 0).flatten(2).any(2).any(0)
    return None if free.all() else free.nonzero().flatten()
