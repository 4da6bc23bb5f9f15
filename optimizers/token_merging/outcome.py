"""What keeping differences came to in a sampling run, in words."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from .stored import MEMORY, Store

LIMITED = "residual left out in {blocks} blocks: all would take more than {limit:.0f} MiB, {share:.0%} of the memory"
SMALL = "residual left out in {blocks} blocks: with so few tokens it would cost more than it saves"
NOWHERE = "attention was computed where nothing can be kept (code that another node has compiled)"


@dataclass
class Outcome:
    """The calls of the network, why others were made without what is kept, and blocks with too few tokens for it."""

    full: int = 0
    added: int = 0
    drifts: list[float] = field(default_factory=list)
    left_out: dict[str, None] = field(default_factory=dict)
    small: set[Hashable] = field(default_factory=set)

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
        if self.small:
            yield SMALL.format(blocks=len(self.small))
        for reason in self.left_out or ({} if self.full or self.small else {NOWHERE: None}):
            yield f"residual left out: {reason}"
