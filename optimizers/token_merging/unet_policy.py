"""Apply ToMe in UNets, without a host: which blocks are reduced, by what, and which blocks share a matching."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ...core.activity import Activity
from ...core.errors import InvalidSetting, UnsupportedModel
from ...core.phrases import joined, phrase, traced, translatable
from .method import BlockCall, Reduction
from .policy import ALL_KEPT, TokenReduction

if TYPE_CHECKING:
    from .grid import Partition

OTHER_TOKENS = traced("another node had already rearranged the tokens, or another package (ToMe, HyperTile, ...)")
OTHER_OUTPUT = traced("attention replaced by another node or package returned all tokens instead of the merged ones")


Size = tuple[int, int]
"""Rows and columns."""


class Block(Protocol):
    """One place with self-attention over the image, as both hosts describe it."""

    @property
    def name(self) -> str:
        """What a person calls it, e.g. ``input 4.1``."""

    @property
    def number(self) -> int:
        """How many others come before it: part of its random sequence, so ``max_downsample`` must not change it."""

    @property
    def part(self) -> str:
        """The part of the UNet that it is in: on the way down, in the middle, or on the way up."""

    @property
    def downsample(self) -> int:
        """How many times smaller than the latent its tokens' grid is on each side."""

    def size(self, latent: Size) -> Size:
        """Return rows and columns of its tokens, for those of the latent."""


B = TypeVar("B", bound=Block)
Reductions = dict[Hashable, Reduction]
Prepared = dict[int, tuple[Size, Reduction]]


@dataclass
class CallState:
    """What the blocks of a UNet share in one model call.

    Attributes:
        activity: counts what happens.
        step: number of the sampling step, see :class:`BlockCall`.
        ratio_factor: factor of the ratio in this call.
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


class UNetReduction(TokenReduction, Generic[B]):
    """Apply ToMe in one UNet.

    Attributes:
        blocks: those whose tokens are reduced, in the order of execution.
        first_level: ``downsample`` of the finest of them.
    """

    places: str = translatable("self-attention blocks")
    blocks: tuple[B, ...]

    def choose_blocks(self, model: str, blocks: Sequence[B]) -> None:
        """Take those of a UNet's blocks with self-attention that the settings name; `UnsupportedModel` if none."""
        if not blocks:
            raise UnsupportedModel(
                phrase("{model} has no self-attention over the image, so there are no tokens to merge.", model=model),
                translatable("Leave token merging out for this model."),
            )
        levels = sorted({block.downsample for block in blocks})
        limit = levels[0] if self.settings.max_downsample == "auto" else self.settings.max_downsample
        self.blocks = tuple(block for block in blocks if block.downsample <= limit)
        if not self.blocks:
            raise UnsupportedModel(
                phrase(
                    "max_downsample is {limit}, but {model} has its first self-attention at downsample {level}: no "
                    "block would be merged.",
                    limit=limit,
                    model=model,
                    level=levels[0],
                ),
                phrase("Set max_downsample to auto or to one of: {levels}.", levels=", ".join(map(str, levels))),
            )
        self.total_places, self.first_level = len(blocks), levels[0]
        if not self.settings.merge_attn:
            self.places = translatable("blocks")
        self._shared: dict[Hashable, tuple[Reductions, int]] = {}
        self._prepared: dict[Hashable, Prepared] = {}
        self._numbers: dict[Hashable, Tensor] = {}

    def clauses(self) -> tuple[str, ...]:
        """Return the settings, and how many blocks they reach."""
        levels = sorted({block.downsample for block in self.blocks})
        whole = translatable("the latent's size")
        names = [whole if level == 1 else phrase("1/{level} of it", level=level) for level in levels]
        reached = phrase(
            "eligible: {count} of {total} {places} (at {levels})",
            count=len(self.blocks),
            total=self.total_places,
            places=self.places,
            levels=joined(", ", names),
        )
        return self.settings.describe(), reached

    @property
    def draws(self) -> bool:
        """Whether anything is chosen at random, so that the number of the step must be known."""
        return self.settings.use_rand and self.method.uses_cells

    def shared_in(self, call: Hashable) -> Reductions:
        """Return what earlier model calls left to share, to be added to.

        Which call makes them anew is decided here, before the network runs, and not inside of it: a compiled network
        then has two graphs, one that makes them and one that uses them. Model calls are counted, not steps: the number
        of the step can be on the GPU, and to ask for it would make every call wait.

        ``call`` is what has to agree for reductions to fit: sizes, device, factor of the ratio, and the passes, so that
        the positive and the negative pass each count their own calls.
        """
        reductions, calls = self._shared.get(call, ({}, 0))
        if calls >= self.settings.refresh_every:
            reductions, calls = {}, 0
        self._shared[call] = (reductions, calls + 1)
        return reductions

    def run_changed(self) -> None:
        """Forget the reductions of another run: a sampling run begins or has ended."""
        self._shared.clear()
        self._prepared.clear()
        self._numbers.clear()

    def prepare(self, latent: Size, device: torch.device, factor: float) -> Prepared:
        """Return what is known of the blocks' reductions before the network runs; made once for a sampling run."""
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

    def reduction(self, block: B, tokens: Tensor, size: Size, state: CallState) -> Reduction | None:
        """Decide how ``tokens`` ``[batch, rows * columns, channels]`` of a block are reduced; None, noted, if not.

        Raises:
            InvalidSetting: if cells are larger than the grid.
        """
        prepared = self.ready(block, tokens, size, state)
        if prepared is not None:
            return prepared
        chosen = self.chosen(block, tokens, tokens.shape[1], size, state)
        if chosen is None:
            return None
        method, call = chosen
        shared = state.shared if method.needs_matching else None
        place = (block.part, block.downsample)
        reduction = None if shared is None else shared.get(place)
        if reduction is None or reduction.tokens != tokens.shape[1]:  # another size where a node has shrunk some blocks
            if method.uses_cells and not torch.compiler.is_compiling():
                call = call._replace(partition=self._partition(method, block, call, tokens.device, state))
            reduction = method.plan(tokens, call)
            if shared is not None:
                shared[place] = reduction
        if reduction.kept >= reduction.tokens:
            state.activity.skip(block.name, ALL_KEPT)
            return None
        return reduction

    def ready(self, block: B, tokens: Tensor, size: Size, state: CallState) -> Reduction | None:
        """Return what was prepared for a block before the network ran, if it fits; arguments as in `reduction`."""
        known = state.prepared.get(block.number)
        # Compiled code works it out by itself, as it knows all of the sizes: what is prepared would be another input.
        if known is None or known[0] != size or torch.compiler.is_compiling():
            return None
        return known[1] if known[1].tokens == tokens.shape[1] else None

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

    def chosen(
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
                phrase(
                    "Apply ToMe: sx is {sx} and sy is {sy}, but block {block} has only {columns} x {rows} tokens for "
                    "an image of this size.",
                    sx=settings.sx,
                    sy=settings.sy,
                    block=block.name,
                    columns=columns,
                    rows=rows,
                ),
                translatable("Make sx and sy smaller, lower max_downsample, or make the image larger."),
            )
        ratio = settings.ratio_at(block.downsample, self.first_level) * state.ratio_factor
        return method, BlockCall(rows, columns, ratio, settings, state.step, block.number)


def restored_output(reduction: Reduction, output: Tensor, activity: Activity) -> Tensor:
    """Return the output of a layer for all tokens; as it is, and counted, if another layer has done that already."""
    if output.shape[1] == reduction.tokens != reduction.kept:
        activity.fall_back(OTHER_OUTPUT)
        return output
    return reduction.restore(output)
