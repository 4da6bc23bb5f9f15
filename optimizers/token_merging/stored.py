"""The memory of kept differences: how they are stored, how much may be held, and which give way."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import Lock

import torch
from torch import Tensor

from ...core.devices import total_memory

MEMORY = 0.05
"""At most this share of a device's memory is held."""

Place = tuple[Hashable, int]
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
    _parts: list[dict[Place, Stored]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def part(self) -> dict[Place, Stored]:
        """Return the place for the differences of another batch of conditionings."""
        self._parts.append({})
        return self._parts[-1]

    def clear(self) -> None:
        for part in self._parts:
            part.clear()
        self._parts.clear()

    def put(self, part: dict[Place, Stored], place: Place, difference: Tensor) -> None:
        """Keep a difference, if need be in the place of others."""
        with self._lock:
            self._put(part, place, difference)

    def _put(self, part: dict[Place, Stored], place: Place, difference: Tensor) -> None:
        part.pop(place, None)
        if place[0] in self.refused:
            return
        self.limit = int(MEMORY * total_memory(difference.device))
        stored = Stored(difference)
        if self.small or self._held() + stored.bytes > self.limit:
            self.small, stored = True, stored.smaller()
            for other in self._parts:
                other.update({key: one.smaller() for key, one in other.items()})
        part[place] = stored
        while self._held() > self.limit:
            self._refuse_one()
        self.most = max(self.most, self._held())

    def _held(self) -> int:
        return sum(one.bytes for part in tuple(self._parts) for one in tuple(part.values()))

    def _refuse_one(self) -> None:
        tokens = {place[0]: one.values.shape[-2] for part in self._parts for place, one in part.items()}
        # Of blocks with as many tokens the latest gives way: those before it are in their place already.
        refused = min(reversed(tokens), key=lambda block: tokens[block])
        self.refused.add(refused)
        for part in self._parts:
            for place in [place for place in part if place[0] == refused]:
                del part[place]
