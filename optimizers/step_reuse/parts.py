"""The parts of a latent that are judged one by one: a mean over all of it hides a ruined frame, or the sound.

A host says which they are. Root mean squares are taken of each; the worst part decides, which also bounds the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Split = Callable[[Tensor], Sequence[Tensor]]
"""From a tensor of the latent's shape to its streams, ``[batch, frames, ...]`` each, 1 frame if it is no video."""


@dataclass(frozen=True)
class Blend:
    """What a mask does to a prediction before it reaches the solver: ``share`` of it and the rest of ``kept``.

    Both are of the latent's shape; the share is from 0 to 1.
    """

    share: Tensor
    kept: Tensor


def undivided(latent: Tensor) -> Sequence[Tensor]:
    """Return a latent as one stream of one frame."""
    return [latent.unsqueeze(1)]


def rms(streams: Sequence[Tensor]) -> Tensor:
    """Return the root mean square of each item's parts, ``[batch * parts]``."""
    return torch.cat([_squares(stream) for stream in streams], 1).sqrt().flatten()


def stream_rms(streams: Sequence[Tensor]) -> Tensor:
    """Return the same of whole streams, in the place of each of their frames.

    Frames are held against their stream's scale: that of a frame which every seed draws alike is nearly 0, and a
    rounding error in it is as hard to see as in any other.
    """
    squares = [_squares(stream) for stream in streams]
    return torch.cat([each.mean(1, keepdim=True).expand_as(each) for each in squares], 1).sqrt().flatten()


def _squares(stream: Tensor) -> Tensor:
    return stream.square().mean(tuple(range(2, stream.ndim)))
