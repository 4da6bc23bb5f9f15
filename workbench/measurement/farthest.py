"""Which picture of which run is farthest from the reference, and where in it: an average would hide a single fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from .lpips import Lpips
from .quality import Distance, average, distances

_TILE = 16
"""Pixels on a side of the regions that are looked at one by one."""


@dataclass(frozen=True)
class Farthest:
    """The run that is farthest: its number, its distance over all pictures, and its farthest picture.

    ``picture`` counts from 1, and ``alone`` is its distance; ``region`` is the root mean square error in its worst
    region of ``16 x 16`` pixels.
    """

    run: int
    distance: Distance
    picture: int
    alone: Distance
    region: float


def farthest(runs: Mapping[int, Tensor], references: Tensor, lpips: Lpips | None = None) -> Farthest:
    """Return what is farthest from ``references`` in any picture of any run; `InvalidSetting` if the sizes differ.

    ``runs`` are pictures by the number of the run, like ``references`` uint8 ``[batch, height, width, channels]``.
    """
    found = {run: distances(pictures, references, lpips) for run, pictures in runs.items()}
    size, run, index = max((one.size, -run, -index) for run, each in found.items() for index, one in enumerate(each))
    run, index = -run, -index
    region = worst_region(runs[run][index], references[index])
    return Farthest(run, average(found[run]), index + 1, found[run][index], region)


def worst_region(picture: Tensor, reference: Tensor) -> float:
    """Return the root mean square error in the worst tile of two pictures ``[height, width, channels]`` of bytes."""
    difference = (picture.double() - reference.double()).square().mean(-1) / 255**2
    height, width = difference.shape
    tile = (min(_TILE, height), min(_TILE, width))
    # Every place of a tile counts in steps of half a tile, so that none is cut in four by the grid.
    step = (max(1, tile[0] // 2), max(1, tile[1] // 2))
    return float(F.avg_pool2d(difference[None, None], tile, step).amax().sqrt())
