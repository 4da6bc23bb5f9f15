"""How far a latent is from the plain one, as a share of what another seed changes (``core/choices.py``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import torch
from torch import Tensor

from .latents import streams_of


def distance(one: Tensor, two: Tensor) -> tuple[float, int]:
    """Return the root mean square of the difference of two samples' farthest picture, and its number in the batch."""
    pairs = list(zip(streams_of(one), streams_of(two), strict=True))
    squares = torch.stack([(a.double() - b.double()).square().flatten(1).mean(1).cpu() for a, b in pairs]).amax(0)
    number = int(squares.nan_to_num(torch.inf).argmax())
    return float(squares[number].sqrt()), number


def seed_distance(plain: Sequence[Tensor]) -> float:
    """Return the distance between samples of different seeds, the root mean square over their pairs."""
    found = [distance(a, b)[0] for i, a in enumerate(plain) for b in plain[:i]]
    return math.sqrt(fmean(one**2 for one in found))
