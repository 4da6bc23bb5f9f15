"""Whether more pictures would tell more: the worst so far, and what further ones stay below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from .timing import student
from .verdict import HARDLY_VISIBLE, TOO_FAR

LEAST_PICTURES = 5
"""With fewer, nothing good is said of a difference for sure."""


def settled(shares: Sequence[float], limits: Sequence[float] = (HARDLY_VISIBLE, TOO_FAR)) -> bool:
    """Say whether it is clear between which of the limits the worst picture lies.

    ``shares`` are the differences of all pictures so far, as shares of a seed change. They are clear where one lies
    above the last limit, or where no limit lies between the worst and :func:`bound`.
    """
    worst = max(shares)
    if worst > limits[-1]:
        return True
    return len(shares) >= LEAST_PICTURES and not any(worst <= limit < bound(shares) for limit in limits)


def bound(shares: Sequence[float]) -> float:
    """Return what one more picture stays below in 39 of 40 cases, if logarithms of differences vary as normal ones do.

    Student's prediction interval. Infinite for one picture, and where some differ and others do not.
    """
    if not any(shares):
        return 0.0
    if len(shares) < 2 or not all(shares):
        return math.inf
    logarithms = [math.log(share) for share in shares]
    error = student(len(shares)) * stdev(logarithms) * math.sqrt(1 + 1 / len(shares))
    return max(*shares, math.exp(min(700.0, fmean(logarithms) + error)))
