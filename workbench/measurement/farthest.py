"""Which picture is farthest from its reference, and where in it: an average would hide a single fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from .quality import Distance

_TILE = 16
"""Pixels on a side of the regions that are looked at one by one."""


@dataclass(frozen=True)
class Farthest:
    """The picture that is farthest: its number, from 1, and its distance ``alone``.

    ``region`` is the root mean square error in its worst region of ``16 x 16`` pixels.
    """

    picture: int
    alone: Distance
    region: float


def farthest(pictures: Tensor, references: Tensor, found: Sequence[Distance]) -> Farthest:
    """Return which of the pictures, uint8 ``[batch, height, width, channels]``, has the largest of the ``found``."""
    index = max(range(len(found)), key=lambda one: found[one].rmse)
    return Farthest(index + 1, found[index], worst_region(pictures[index], references[index]))


def worst_region(picture: Tensor, reference: Tensor) -> float:
    """Return the root mean square error in the worst tile of two pictures ``[height, width, channels]`` of bytes."""
    difference = (picture.double() - reference.double()).square().mean(-1) / 255**2
    height, width = difference.shape
    tile = (min(_TILE, height), min(_TILE, width))
    # Every place of a tile counts in steps of half a tile, so that none is cut in four by the grid.
    step = (max(1, tile[0] // 2), max(1, tile[1] // 2))
    return float(F.avg_pool2d(difference[None, None], tile, step).amax().sqrt())
