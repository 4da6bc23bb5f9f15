"""In which steps attention is computed both ways, and what is kept of these: how, how much, and which give way."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from threading import Lock

import torch
from torch import Tensor

from ...core.devices import total_memory

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


MEMORY = 0.05
"""At most this share of a device's memory is held."""

AttentionPlace = tuple[Hashable, int]
"""An attention: its block, and its number among those of the block."""


@dataclass(frozen=True)
class Stored:
    """A difference ``[..., tokens, channels]``; in int8 with a scale for each token, a quarter of fp32."""

    values: Tensor
    scale: Tensor | None = None

    @property
    def bytes(self) -> int:
        return self.values.nbytes + (0 if self.scale is None else self.scale.nbytes)

    def read(self) -> Tensor:
        return self.values if self.scale is None else self.values.to(self.scale.dtype) * self.scale

    def smaller(self) -> Stored:
        """Return it in int8."""
        if self.scale is not None:
            return self
        scale = (self.values.abs().amax(-1, keepdim=True) / 127).clamp(min=torch.finfo(self.values.dtype).tiny)
        return Stored((self.values / scale).round().to(torch.int8), scale)


@dataclass
class Store:
    """All differences of a sampling run, of several batches of conditionings.

    As they are where that stays below the limit, else all in int8, else of the blocks with the most tokens only, which
    gain most for each byte.

    Attributes:
        most: bytes that were held at the same time.
        limit: bytes that may be.
        small: whether all are in int8.
        refused: blocks of which nothing is kept any more.
    """

    most: int = 0
    limit: int = 0
    small: bool = False
    refused: set[Hashable] = field(default_factory=set)
    _parts: list[dict[AttentionPlace, Stored]] = field(default_factory=list)
    _held: int = 0
    _lock: Lock = field(default_factory=Lock)

    def part(self) -> dict[AttentionPlace, Stored]:
        """Return the place for the differences of another batch of conditionings."""
        self._parts.append({})
        return self._parts[-1]

    def clear(self) -> None:
        for part in self._parts:
            self.drop(part)
        self._parts.clear()

    def drop(self, part: dict[AttentionPlace, Stored]) -> None:
        """Free the differences of one batch of conditionings."""
        with self._lock:
            for place in tuple(part):
                self._remove(part, place)

    def put(self, part: dict[AttentionPlace, Stored], place: AttentionPlace, difference: Tensor) -> None:
        """Keep a difference, if need be in the place of others."""
        with self._lock:
            self._put(part, place, difference)

    def _put(self, part: dict[AttentionPlace, Stored], place: AttentionPlace, difference: Tensor) -> None:
        self._remove(part, place)
        if place[0] in self.refused:
            return
        self.limit = int(MEMORY * total_memory(difference.device))
        stored = Stored(difference)
        if not self.small and self._held + stored.bytes > self.limit:
            self.small = True
            for other in self._parts:
                for key, one in tuple(other.items()):
                    self._keep(other, key, one.smaller())
        self._keep(part, place, stored.smaller() if self.small else stored)
        while self._held > self.limit:
            self._refuse_one()
        self.most = max(self.most, self._held)

    def _keep(self, part: dict[AttentionPlace, Stored], place: AttentionPlace, stored: Stored) -> None:
        self._remove(part, place)
        part[place] = stored
        self._held += stored.bytes

    def _remove(self, part: dict[AttentionPlace, Stored], place: AttentionPlace) -> None:
        before = part.pop(place, None)
        self._held -= 0 if before is None else before.bytes

    def _refuse_one(self) -> None:
        tokens = {place[0]: one.values.shape[-2] for part in self._parts for place, one in part.items()}
        # Of blocks with as many tokens the latest gives way: those before it are in their place already.
        refused = min(reversed(tokens), key=lambda block: tokens[block])
        self.refused.add(refused)
        for part in self._parts:
            for place in [place for place in part if place[0] == refused]:
                self._remove(part, place)
