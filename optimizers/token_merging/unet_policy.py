"""Apply ToMe in UNets, without a host: which blocks are reduced, and by what."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ...core.activity import Activity
from ...core.devices import is_compiling
from ...core.errors import InvalidSetting, UnsupportedModel
from ...core.phrases import phrase
from .grid import Partition
from .method import BlockCall, Reduction
from .policy import ALL_KEPT, TokenMergingPolicy
from .residual import ResidualCall, where_kept
from .settings import TokenMergingSettings

OTHER_TOKENS = "another node or extension had already rearranged the tokens (ToMe, HyperTile, ...)"
OTHER_OUTPUT = "attention replaced by another node or package returned all tokens instead of the merged ones"
MASKED = "an attention mask over the image was given, and merged tokens have no place in it"
COARSE = "coarser than the two finest levels: with residual they lose more than they save"

Size = tuple[int, int]
"""Rows and columns."""


@dataclass(frozen=True)
class Block:
    """One place with self-attention over the image; each host adds how it finds it.

    Attributes:
        name: what a person calls it, e.g. ``input 4.1``.
        number: how many others come before it: part of its random sequence, so ``max_downsample`` must not change it.
        downsample: how many times smaller than the latent its tokens' grid is on each side (1, 2, 4, 8).
    """

    name: str
    number: int
    downsample: int

    def size(self, latent: Size) -> Size:
        """Return rows and columns of tokens. Each step down is a convolution of stride 2, which rounds up."""
        return -(-latent[0] // self.downsample), -(-latent[1] // self.downsample)


B = TypeVar("B", bound=Block)


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

    def attend(self, block: str, x: Tensor, whole: Callable[[], Any], reduced: Callable[[], Any]) -> Any:
        """Return the output of a self-attention over all of ``x``, which can be computed both ways."""
        residual = where_kept(self.residual, block, x.shape[1], x.device)
        return reduced() if residual is None else residual.attend(block, whole, reduced)

    def around_layer(self, block: Block, x: Tensor, compute: Callable[[Tensor], Any]) -> Any:
        """Return the output of another layer for the tokens ``x`` of a block, merged as for its self-attention."""
        reduction = self.reductions.get(block.number)
        if reduction is None or not reduction.shrinks_queries:  # counted where that was decided
            return compute(x)
        self.activity.use(block.name, reduction.tokens, reduction.kept)
        return restored_output(reduction, compute(reduction.reduce(x)), self.activity)


class UNetMergingPolicy(TokenMergingPolicy, Generic[B]):
    """Apply ToMe in one UNet; `UnsupportedModel` if the settings would reach no block.

    Args:
        model: for errors.
        blocks: with self-attention over the image, in the order of execution. The attribute has those that are merged.

    Attributes:
        first_level: ``downsample`` of the finest of them.
        draws: whether anything is chosen at random, so that the number of the step must be known.
    """

    def __init__(self, model: str, blocks: Sequence[B], settings: TokenMergingSettings) -> None:
        places = phrase("self-attention blocks") if settings.merge_attn else phrase("blocks")
        super().__init__(settings, places, len(blocks))
        if not blocks:
            raise UnsupportedModel(
                f"{model} has no self-attention over the image, so there are no tokens to merge.",
                "Leave token merging out for this model.",
            )
        levels = sorted({block.downsample for block in blocks})
        self.first_level, self._second_level = levels[0], levels[:2][-1]
        limit = levels[0] if settings.max_downsample == "auto" else settings.max_downsample
        self.blocks = tuple(block for block in blocks if block.downsample <= limit)
        if not self.blocks:
            raise UnsupportedModel(
                f"max_downsample is {limit}, but {model} has its first self-attention at downsample {levels[0]}: no "
                "block would be merged.",
                f"Set max_downsample to auto or to one of: {', '.join(map(str, levels))}.",
            )
        self.draws = settings.use_rand and self.method.uses_cells
        self._prepared: dict[Hashable, Reduction | None] = {}
        self._numbers: dict[Hashable, Tensor] = {}

    def clauses(self) -> tuple[str, ...]:
        levels = sorted({block.downsample for block in self.blocks})
        names = ", ".join("the latent's size" if level == 1 else f"1/{level} of it" for level in levels)
        reached = f"eligible: {len(self.blocks)} of {self.total_places} {self.places} (at {names})"
        return self.settings.describe(), reached

    def began(self) -> None:
        super().began()
        self._forget()  # somebody may have called the network outside of a run

    def ended(self) -> None:
        super().ended()
        self._forget()

    def _forget(self) -> None:
        self._prepared.clear()
        self._numbers.clear()

    def reduction(self, block: B, tokens: Tensor, size: Size, state: CallState) -> Reduction | None:
        """Decide how ``tokens`` ``[batch, rows * columns, channels]`` of a block are reduced; None, noted, if not.

        Raises `InvalidSetting` if cells are larger than the grid.
        """
        found = self.block_call(block, tokens, tokens.shape[1], size, state)
        if found is None:
            return None
        method, call = found
        residual = where_kept(state.residual, block.name, tokens.shape[1], tokens.device)
        # Compiled code works all of it out by itself: what is kept would be another input of its graph.
        if is_compiling():
            reduction = method.plan(tokens, call)
        elif residual is None or self.other_layers:
            reduction = self._planned(method, block, tokens, call, state)
        else:
            planned = partial(self._planned, method, block, tokens, call, state)
            reduction = residual.reduction(block.name, planned)
        if reduction.kept >= reduction.tokens:
            state.activity.skip(block.name, ALL_KEPT)
            return None
        if self.other_layers:  # else nobody asks, and it would hold memory
            state.reductions[block.number] = reduction
        return reduction

    def around_attention(
        self,
        block: B,
        x: Tensor,
        size: Size,
        state: CallState,
        masked: bool,
        attend: Callable[[Tensor, Tensor | None], Any],
    ) -> Any:
        """Return the output of a self-attention over ``x``, with fewer keys or fewer tokens altogether.

        ``attend`` computes it for tokens and their keys, None for the tokens themselves; ``masked``: with a mask.
        """
        reduction = self.reduction(block, x, size, state)
        if reduction is not None and masked:
            state.activity.fall_back(MASKED)
            state.reductions.pop(block.number, None)
            reduction = None
        if reduction is None or not self.settings.merge_attn:
            return attend(x, None)
        state.activity.use(block.name, reduction.tokens, reduction.kept)

        def fewer() -> Any:
            kept = reduction.reduce(x)
            if not reduction.shrinks_queries:
                return attend(x, kept)
            return restored_output(reduction, attend(kept, None), state.activity)

        return state.attend(block.name, x, lambda: attend(x, None), fewer)

    def block_call(
        self, block: B, like: Tensor, count: int, size: Size, state: CallState
    ) -> tuple[type[Reduction], BlockCall] | None:
        """Return what reduces the ``count`` image tokens of a block, on the device of ``like``, and by how much."""
        rows, columns = size
        if count != rows * columns:
            state.activity.fall_back(OTHER_TOKENS)
            return None
        residual = where_kept(state.residual, block.name, count, like.device)
        if residual is not None and block.downsample > self._second_level:
            state.activity.skip(block.name, COARSE)
            return None
        method = self.method_for(block.name, count, like.device, state.activity, residual)
        if method is None:
            return None
        settings = self.settings
        if method.uses_cells and (settings.sx > columns or settings.sy > rows):
            raise InvalidSetting(
                f"Apply ToMe: sx is {settings.sx} and sy is {settings.sy}, but block {block.name} has only {columns} x "
                f"{rows} tokens for an image of this size.",
                "Make sx and sy smaller, lower max_downsample, or make the image larger.",
            )
        ratio = settings.ratio_at(block.downsample, self.first_level, residual is not None)
        return method, BlockCall(rows, columns, ratio, settings, state.step, block.number)

    def _planned(
        self, method: type[Reduction], block: B, tokens: Tensor, call: BlockCall, state: CallState
    ) -> Reduction:
        """Return how a block is reduced, made once for a sampling run where its tokens need not be looked at."""
        key = (method, call.height, call.width, call.ratio, tokens.device)
        if key not in self._prepared:
            self._prepared[key] = method.prepare(call, tokens.device)
        prepared = self._prepared[key]
        if prepared is not None:
            return prepared
        if method.uses_cells:
            call = call._replace(partition=self._partition(method, block, call, tokens.device, state))
        return method.plan(tokens, call)

    def _partition(
        self, method: type[Reduction], block: B, call: BlockCall, device: torch.device, state: CallState
    ) -> Partition | None:
        """Return destinations and sources of a block. They are drawn for all blocks of its level and size at once."""
        place = (block.downsample, call.height, call.width)
        if place not in state.partitions:
            level = [other.number for other in self.blocks if other.downsample == block.downsample]
            if (place, device) not in self._numbers:
                self._numbers[(place, device)] = torch.tensor(level, device=device)[:, None]
            drawn = method.draw(call, self._numbers[(place, device)])
            state.partitions[place] = dict(zip(level, drawn, strict=True))
        return state.partitions[place][block.number]


def restored_output(reduction: Reduction, output: Tensor, activity: Activity) -> Tensor:
    """Return the output of a layer for all tokens; as it is, and counted, if another layer has done that already."""
    if output.shape[1] == reduction.tokens != reduction.kept:
        activity.fall_back(OTHER_OUTPUT)
        return output
    return reduction.restore(output)
