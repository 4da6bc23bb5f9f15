"""Whether more pictures are needed: the worst one so far, and a bound for further ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from ...core.choices import HARDLY_VISIBLE, VISIBLE
from .speedup import student

LEAST_PICTURES = 5
"""The least number of pictures from which a difference can be called small with certainty."""


def settled(shares: Sequence[float], limits: Sequence[float] = (HARDLY_VISIBLE, VISIBLE)) -> bool:
    """Say whether it is clear between which of the limits the worst picture lies.

    ``shares`` are the differences of all pictures so far, as shares of a seed change. They are clear where one lies
    above the last limit, or where no limit lies between the worst and :func:`bound`.
    """
    worst = max(shares)
    if worst > limits[-1]:
        return True
    return len(shares) >= LEAST_PICTURES and not any(worst <= limit < bound(shares) for limit in limits)


def bound(shares: Sequence[float]) -> float:
    """Return the bound of one more picture's difference in 39 of 40 cases, if logarithms of differences are normal.

    Student's prediction interval. Infinite for one picture, and where some differ and others do not.
    """
    if not any(shares):
        return 0.0
    if len(shares) < 2 or not all(shares):
        return math.inf
    logarithms = [math.log(share) for share in shares]
    error = student(len(shares)) * stdev(logarithms) * math.sqrt(1 + 1 / len(shares))
    return max(*shares, math.exp(min(700.0, fmean(logarithms) + error)))
