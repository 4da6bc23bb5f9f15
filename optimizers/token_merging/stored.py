"""The memory of kept differences: how they are stored, how much may be held, which give way, and what a run came to."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from threading import Lock

import torch
from torch import Tensor

from ...core.devices import total_memory

MEMORY = 0.05
"""At most this share of a device's memory is held."""

LIMITED = "residual left out in {blocks} blocks: all would take more than {limit:.0f} MiB, {share:.0%} of the memory"
NOWHERE = "attention was computed where nothing can be kept (code that another node has compiled)"


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


@dataclass
class ResidualCounts:
    """The calls of the network, and why others were made without what is kept."""

    full: int = 0
    added: int = 0
    drifts: list[float] = field(default_factory=list)
    left_out: dict[str, None] = field(default_factory=dict)

    def lines(self, store: Store) -> Iterator[str]:
        """Yield what a run came to."""
        if self.added:
            kind = " in int8" if store.small else ""
            yield (
                f"residual: {self.full} of {self.full + self.added} model calls computed attention both "
                f"ways, the others added the difference that was kept ({store.most / 2**20:.1f} MiB{kind})"
            )
        if self.drifts:
            mean, most = sum(self.drifts) / len(self.drifts), max(self.drifts)
            yield f"from one full step to the next the difference changed by {mean:.0%} (most: {most:.0%})"
        if store.refused:
            yield LIMITED.format(blocks=len(store.refused), share=MEMORY, limit=store.limit / 2**20)
        for reason in self.left_out or ({} if self.full else {NOWHERE: None}):
            yield f"residual left out: {reason}"
