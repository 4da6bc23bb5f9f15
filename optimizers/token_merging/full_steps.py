"""In which steps of a schedule attention is computed both ways, and from how many tokens on that pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

SHARE = 0.6
"""Of the saving, that full steps may use up. The first two steps are always full, and not counted: what is kept from
the first alone is of noise."""

FIRST = 3
"""The first full steps follow each other; those behind them are evenly apart."""

KEPT, ADDED = 8, 3
"""For each number of an attention's output, how many are read and written to keep a difference and to add it."""

OPERATIONS = {"cpu": 4, "": 256}
"""How many operations of attention take as long as one of these, by type of device, "" for all others: measured on a
processor (one thread, fp32: 2 to 5); else by data sheets (FlashAttention 2 over memory, 16 bits: H100 270, RTX 4090
300), not measured.
"""


class FullSteps:
    """Where the full steps of a schedule are: by noise level, so that solvers may evaluate as often as they like."""

    def __init__(self, levels: Sequence[float], ratio: float) -> None:
        """``levels``: of the schedule, the last one included; ``ratio``: the share of attention that reducing saves."""
        steps = levels[:-1]
        self.ratio, self.steps = ratio, len(steps)
        full = min(max(2, int(ratio * SHARE * self.steps + 1e-6)), self.steps)
        later = max(full - FIRST, 0)
        apart = (self.steps - FIRST) / (later + 1)
        evenly = (FIRST - 1 + round(number * apart) for number in range(1, later + 1))
        self.places = [*range(min(full, FIRST)), *evenly]
        self.levels = [steps[place] for place in self.places]

    @property
    def pay(self) -> bool:
        """Whether they cost less attention than reducing it in all steps saves."""
        return len(self.levels) < self.ratio * self.steps

    def least_tokens(self) -> dict[str, int]:
        """Return how many tokens a block must have to save more attention than moving numbers costs, if they `pay`.

        By type of device, as ``OPERATIONS``. A number of attention's output takes 4 operations for each token. Powers
        of two: where a network is compiled, another number is another graph.
        """
        full = len(self.levels)
        moved, saved = KEPT * full + ADDED * (self.steps - full), 4 * (self.ratio * self.steps - full)
        return {kind: int(2 ** math.ceil(math.log2(each * moved / saved))) for kind, each in OPERATIONS.items()}

    @property
    def mean_distance(self) -> float:
        """Of the other steps from the last full step before, in steps."""
        ends = [*self.places[1:], self.steps]
        distances = [one for place, end in zip(self.places, ends, strict=True) for one in range(1, end - place)]
        return fmean(distances) if distances else 0.0

    def segment(self, sigma: float) -> int:
        """Return how many full steps there are down to a noise level: the first evaluation of each segment is full."""
        return sum(level >= sigma * (1 - 1e-4) for level in self.levels)
