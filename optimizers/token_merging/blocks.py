"""The places of a UNet whose tokens can be fewer, and what they share in one call of it. Knows no host."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ...core.activity import Activity
from ..families import Block
from .grid import Partition
from .method import Reduction
from .residual import ResidualCall, where_kept

OTHER_LAYER = "another node or package gave a layer other tokens than the block's (regional prompts, parts of a batch)"
OTHER_OUTPUT = "attention replaced by another node or package returned all tokens instead of the merged ones"


@dataclass
class CallState:
    """What the blocks of a UNet share in one model call.

    Attributes:
        step: see :class:`BlockCall`.
        reductions: what the self-attention of a block was reduced by, by number, where its other layers ask for it.
        partitions: destinations and sources of all blocks of a level and size, by number.
        residual: what the call does with the differences that reducing makes; None for nothing.
    """

    activity: Activity = field(default_factory=Activity)
    step: int | Tensor = 0
    reductions: dict[int, Reduction] = field(default_factory=dict)
    partitions: dict[Hashable, dict[int, Partition | None]] = field(default_factory=dict)
    residual: ResidualCall | None = None

    def attend(self, block: str, whole: Callable[[], Any], reduced: Callable[[], Any]) -> Any:
        """Return the output of a self-attention for all tokens, which can be computed both ways."""
        residual = where_kept(self.residual, block)
        return reduced() if residual is None else residual.attend(block, whole, reduced)

    def reduction_for(self, block: Block, x: Tensor) -> Reduction | None:
        """Return how the queries ``x`` of another layer of a block are merged; None, noted, for not at all."""
        reduction = self.reductions.get(block.number)
        if reduction is None or not reduction.shrinks_queries:  # counted where that was decided
            return None
        if not reduction.fits(x):
            self.activity.fall_back(OTHER_LAYER)
            return None
        return reduction

    def around_layer(self, block: Block, x: Tensor, compute: Callable[[Tensor], Any]) -> Any:
        """Return the output of another layer for the tokens ``x`` of a block, merged as for its self-attention."""
        reduction = self.reduction_for(block, x)
        if reduction is None:
            return compute(x)
        return restored_output(reduction, compute(reduction.reduce(x)), block.name, self.activity)


def restored_output(reduction: Reduction, output: Tensor, block: str, activity: Activity) -> Tensor:
    """Return the output of a block's layer for all tokens, and count what was done.

    It is returned as it is, a fallback, if another layer has done that already.
    """
    if output.shape[1] == reduction.tokens != reduction.kept:
        activity.fall_back(OTHER_OUTPUT)
        return output
    activity.use(block, reduction.tokens, reduction.kept)
    return reduction.restore(output)
