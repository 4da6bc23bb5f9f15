"""Apply ToMe in UNets, without a host: which blocks are reduced, by what, and which blocks share a matching."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ...core.activity import Activity
from ...core.devices import is_compiling
from ...core.errors import InvalidSetting, UnsupportedModel
from ...core.phrases import phrase
from .grid import Partition
from .method import BlockCall, Reduction
from .policy import ALL_KEPT, TokenMergingPolicy
from .settings import TokenMergingSettings

OTHER_TOKENS = "another node or extension had already rearranged the tokens (ToMe, HyperTile, ...)"
OTHER_OUTPUT = "attention replaced by another node or package returned all tokens instead of the merged ones"

Size = tuple[int, int]
"""Rows and columns."""


@dataclass(frozen=True)
class Block:
    """One place with self-attention over the image; each host adds how it finds it.

    Attributes:
        name: what a person calls it, e.g. ``input 4.1``.
        number: how many others come before it: part of its random sequence, so ``max_downsample`` must not change it.
        part: of the UNet: on the way down, in the middle, or on the way up.
        downsample: how many times smaller than the latent its tokens' grid is on each side (1, 2, 4, 8).
    """

    name: str
    number: int
    part: str
    downsample: int

    def size(self, latent: Size) -> Size:
        """Return rows and columns of tokens. Each step down is a convolution of stride 2, which rounds up."""
        return -(-latent[0] // self.downsample), -(-latent[1] // self.downsample)


B = TypeVar("B", bound=Block)
Reductions = dict[Hashable, Reduction]
Prepared = dict[int, tuple[Size, Reduction]]


@dataclass
class CallState:
    """What the blocks of a UNet share in one model call.

    Attributes:
        step: see :class:`BlockCall`.
        shared: reductions that several blocks use, and several calls; None if each block makes its own.
        reductions: what the self-attention of a block was reduced by, by number, for its other layers.
        prepared: size and reduction of each block whose tokens need not be looked at, by number.
        partitions: destinations and sources of all blocks of a level and size, by number.
    """

    activity: Activity = field(default_factory=Activity)
    step: int | Tensor = 0
    ratio_factor: float = 1.0
    shared: Reductions | None = None
    reductions: dict[int, Reduction] = field(default_factory=dict)
    prepared: Prepared = field(default_factory=dict)
    partitions: dict[Hashable, dict[int, Partition | None]] = field(default_factory=dict)


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
        self.first_level = levels[0]
        limit = levels[0] if settings.max_downsample == "auto" else settings.max_downsample
        self.blocks = tuple(block for block in blocks if block.downsample <= limit)
        if not self.blocks:
            raise UnsupportedModel(
                f"max_downsample is {limit}, but {model} has its first self-attention at downsample {levels[0]}: no "
                "block would be merged.",
                f"Set max_downsample to auto or to one of: {', '.join(map(str, levels))}.",
            )
        self.draws = settings.use_rand and self.method.uses_cells
        self._shared: dict[Hashable, tuple[Reductions, int]] = {}
        self._prepared: dict[Hashable, Prepared] = {}
        self._numbers: dict[Hashable, Tensor] = {}

    def clauses(self) -> tuple[str, ...]:
        levels = sorted({block.downsample for block in self.blocks})
        names = ", ".join("the latent's size" if level == 1 else f"1/{level} of it" for level in levels)
        reached = f"eligible: {len(self.blocks)} of {self.total_places} {self.places} (at {names})"
        return self.settings.describe(), reached

    def began(self) -> None:
        self._forget()  # somebody may have called the network outside of a run

    def ended(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._shared.clear()
        self._prepared.clear()
        self._numbers.clear()

    def begin_call(
        self, state: CallState, latent: Size, device: torch.device, alike: Hashable, prepare: bool = True
    ) -> None:
        """Lay out in ``state`` what is known before the network runs.

        ``latent``: its rows and columns. ``alike``: what must agree for calls to share reductions: sizes, and the
        passes, so that the positive and the negative pass each count their own calls. ``prepare``: whether to make what
        needs no look at the tokens; compiled code makes it by itself.
        """
        if self.settings.refresh_every > 1:
            state.shared = self._shared_in((alike, device, state.ratio_factor))
        if prepare:
            state.prepared = self._prepared_for(latent, device, state.ratio_factor)

    def prepared(self, block: B, tokens: Tensor, size: Size, state: CallState) -> Reduction | None:
        """Return what was made for a block before the network ran, if it fits; arguments as in `reduction`."""
        known = state.prepared.get(block.number)
        # Compiled code works it out by itself, as it knows all of the sizes: what is prepared would be another input.
        if known is None or known[0] != size or is_compiling():
            return None
        return known[1] if known[1].tokens == tokens.shape[1] else None

    def reduction(self, block: B, tokens: Tensor, size: Size, state: CallState) -> Reduction | None:
        """Decide how ``tokens`` ``[batch, rows * columns, channels]`` of a block are reduced; None, noted, if not.

        Raises `InvalidSetting` if cells are larger than the grid.
        """
        found = self.block_call(block, tokens, tokens.shape[1], size, state)
        if found is None:
            return None
        method, call = found
        shared = state.shared if method.needs_matching else None
        place = (block.part, block.downsample)
        reduction = None if shared is None else shared.get(place)
        if reduction is None or reduction.tokens != tokens.shape[1]:  # another size where a node has shrunk some blocks
            if method.uses_cells and not is_compiling():
                call = call._replace(partition=self._partition(method, block, call, tokens.device, state))
            reduction = method.plan(tokens, call)
            if shared is not None:
                shared[place] = reduction
        if reduction.kept >= reduction.tokens:
            state.activity.skip(block.name, ALL_KEPT)
            return None
        return reduction

    def block_call(
        self, block: B, like: Tensor, count: int, size: Size, state: CallState
    ) -> tuple[type[Reduction], BlockCall] | None:
        """Return what reduces the ``count`` image tokens of a block, on the device of ``like``, and by how much."""
        rows, columns = size
        if count != rows * columns:
            state.activity.fall_back(OTHER_TOKENS)
            return None
        method = self.method_for(block.name, count, like.device, state.activity)
        if method is None:
            return None
        settings = self.settings
        if method.uses_cells and (settings.sx > columns or settings.sy > rows):
            raise InvalidSetting(
                f"Apply ToMe: sx is {settings.sx} and sy is {settings.sy}, but block {block.name} has only {columns} x "
                f"{rows} tokens for an image of this size.",
                "Make sx and sy smaller, lower max_downsample, or make the image larger.",
            )
        ratio = settings.ratio_at(block.downsample, self.first_level) * state.ratio_factor
        return method, BlockCall(rows, columns, ratio, settings, state.step, block.number)

    def _shared_in(self, call: Hashable) -> Reductions:
        """Return what earlier model calls left to share, to be added to.

        Which call makes them anew is decided before the network runs: a compiled network then has two graphs, one that
        makes them and one that uses them. Model calls are counted, not steps, whose number can be on the GPU.
        """
        reductions, calls = self._shared.get(call, ({}, 0))
        if calls >= self.settings.refresh_every:
            reductions, calls = {}, 0
        self._shared[call] = (reductions, calls + 1)
        return reductions

    def _prepared_for(self, latent: Size, device: torch.device, factor: float) -> Prepared:
        """Return size and reduction of the blocks whose tokens need not be looked at; made once for a sampling run."""
        key = (latent, device, factor)
        if key not in self._prepared:
            made: dict[tuple[Size, float], Reduction | None] = {}
            found: Prepared = {}
            for block in self.blocks:
                size = rows, columns = block.size(latent)
                ratio = self.settings.ratio_at(block.downsample, self.first_level) * factor
                if (size, ratio) not in made:
                    method = self.method.for_block(rows * columns, device.type, self.other_layers)
                    call = BlockCall(rows, columns, ratio, self.settings)
                    made[(size, ratio)] = None if method is None else method.prepare(call, device)
                reduction = made[(size, ratio)]
                if reduction is not None and reduction.kept < reduction.tokens:
                    found[block.number] = (size, reduction)
            self._prepared[key] = found
        return self._prepared[key]

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
