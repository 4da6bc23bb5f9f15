"""One call of a UNet in which tokens are reduced: what follows a token from block to block. Knows no host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core.activity import Activity
from ..core.devices import is_compiling
from ..core.not_copied import Function, NotCopied
from ..models.families import Block, Size
from .gains import LEAST, Gains, Timed
from .kept import AttentionPlace, Kept, PassRecord
from .kv_downsample import FewerKeys, fewer_keys, minimum_tokens
from .tome_settings import TokenMergingSettings
from .tomesd import Matching, choices, column, match, partition

Reduction = FewerKeys | Matching
Parts = tuple[Tensor, Tensor]

OTHER_TOKENS = "another node or extension had already rearranged the tokens (ToMe, HyperTile, ...)"
OTHER_LAYER = "another node or package gave a layer other tokens than the block's (regional prompts, parts of a batch)"
OTHER_OUTPUT = "attention replaced by another node or package returned all tokens instead of the merged tokens"
MASKED = "an attention mask over the image was given, which does not fit merged tokens"

# Filled with `str.format`, which keeps code under torch.compile in one graph.
_TOO_FEW = "{tokens} tokens are too few to save time"
_ALL_KEPT = "with these settings, so small a grid keeps all of its tokens"
_SLOW = "timed here, whole attention takes as long: {speedup:.2f}x"
_COARSE = "coarser than the two finest levels: with residual they lose more than they save"


@dataclass(frozen=True)
class ModuleBlock(Block):
    """A transformer block with its ``module``, in hosts in which a layer's ``forward`` is what can be replaced."""

    module: Any

    def layers(self, settings: TokenMergingSettings) -> Iterator[tuple[str, Any]]:
        """Yield name and module of the layers whose tokens ``settings`` reduce, self-attention first."""
        for name in ("attn1", *settings.other_layers.values()):
            if (layer := getattr(self.module, name, None)) is not None:
                yield name, layer


@dataclass
class TokenCall(NotCopied):
    """What one call of a UNet does with its tokens.

    Compiled code reads it, so each call begins alike; such code changes nothing of it but the counts, ``visits``,
    ``made`` and ``missed``.

    Attributes:
        levels: ``downsample`` of the two finest levels of the blocks that can be reduced.
        numbers: of the blocks that are reduced, by ``downsample``.
        kept: of the sampling run.
        step: number of the sampling step, an int64 scalar tensor where graphs are compiled.
        record: what is kept for the passes of the call; None to keep and add nothing.
        visits: how many attentions there were in each block.
        made: differences that compiled code has made.
        missed: whether a difference was not there.
        gains: what is known of times; ``beside``: what they depend on besides sizes.
        timed: what was timed of each block, by its name.
        merged: how the tokens of a block are merged, by its number, where its other layers ask for it.
        parts: destinations and sources of the blocks of a level and size, by their numbers.
    """

    settings: TokenMergingSettings
    levels: tuple[int, int]
    kept: Kept = field(default_factory=Kept)
    activity: Activity = field(default_factory=Activity)
    step: int | Tensor = 0
    record: PassRecord | None = None
    visits: dict[str, int] = field(default_factory=dict)
    made: dict[AttentionPlace, Tensor] = field(default_factory=dict)
    missed: bool = False
    merged: dict[int, Matching] = field(default_factory=dict)
    parts: dict[tuple[int, Size], dict[int, Parts]] = field(default_factory=dict)
    numbers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    gains: Gains = field(default_factory=Gains)
    beside: str = ""
    timed: dict[str, Timed] = field(default_factory=dict)

    def keeps(self, block: Block) -> bool:
        """Return whether the difference of a block is kept or added."""
        return self.record is not None and block.name not in self.kept.refused

    def reduction(self, block: Block, tokens: Tensor, size: Size) -> Reduction | None:
        """Decide how ``tokens`` ``[batch, rows * columns, channels]`` of a block are reduced; None, noted, if not."""
        self.merged.pop(block.number, None)  # of tokens before these
        if tokens.shape[1] != size[0] * size[1]:
            self.activity.fall_back(OTHER_TOKENS)
            return None
        reduction: Reduction | None
        if self.settings.merges:
            reduction = match(tokens, *self._parts(block, size, tokens.device), self.settings.ratio)
        else:
            reduction = self._fewer_keys(block, tokens, size)
        if reduction is not None and reduction.kept >= reduction.tokens:
            self.activity.skip(block.name, _ALL_KEPT)
            return None
        if isinstance(reduction, Matching) and self.settings.other_layers:  # else nobody asks, and it would hold memory
            self.merged[block.number] = reduction
        return reduction

    def _fewer_keys(self, block: Block, tokens: Tensor, size: Size) -> FewerKeys | None:
        """Return which keys of a block stay; None, noted, where they all do."""
        settings, keeps, count, kind = self.settings, self.keeps(block), tokens.shape[1], tokens.device.type
        if keeps and block.downsample > self.levels[1]:
            self.activity.skip(block.name, _COARSE)
            return None
        least = minimum_tokens(kind) if settings.method == "auto" else 0
        if self.record is not None:  # reduced without what is kept, they would move the picture most and save least
            least = max(least, self.kept.least.get(kind, self.kept.least[""]))
        if count < least:
            self.activity.skip(block.name, _TOO_FEW.format(tokens=count))
            return None
        if keeps and not is_compiling() and kind in ("cpu", "cuda") and self._is_slow(block, tokens):
            return None
        ratio = settings.ratio
        if not keeps and settings.alone is not None:
            ratio = settings.alone if block.downsample == self.levels[0] else 0.0
        return self.kept.once(fewer_keys, *size, ratio, tokens.device, keeps)

    def _is_slow(self, block: Block, tokens: Tensor) -> bool:
        """Return whether reduced attention gains no time here, and note it."""
        timed = self.timed[block.name] = Timed(tokens.device, tokens.dtype, self.beside, str([*tokens.shape]))
        speedup = self.gains.speedup(timed, self.kept.share)
        if speedup is None or speedup >= LEAST:
            return False
        self.kept.slow[block.name] = speedup
        self.activity.skip(block.name, _SLOW.format(speedup=speedup))
        return True

    def _parts(self, block: Block, size: Size, device: torch.device) -> Parts:
        """Return destinations and sources of a block, which are worked out for all blocks of its level at once."""
        if is_compiling():  # what is known would be another input of its graph
            return self._drawn(block.number, size, device)
        level = (block.downsample, size)
        if level not in self.parts:
            numbers = self.numbers[block.downsample]
            if self.settings.use_rand:
                drawn = self._drawn(self.kept.once(column, numbers, device), size, device)
                self.parts[level] = dict(zip(numbers, zip(*drawn, strict=True), strict=True))
            else:
                self.parts[level] = dict.fromkeys(numbers, self._drawn(0, size, device))
        return self.parts[level][block.number]

    def _drawn(self, numbers: int | Tensor, size: Size, device: torch.device) -> Parts:
        (rows, columns), (sx, sy), offsets = size, (self.settings.sx, self.settings.sy), None
        if self.settings.use_rand:
            offsets = choices((rows // sy) * (columns // sx), sx * sy, self.step, numbers, device)
        return partition(rows, columns, sx, sy, offsets, device)

    def attend(self, block: Block, whole: Callable[[], Any], reduced: Callable[[], Any]) -> Any:
        """Return the output of one self-attention for all tokens, of the same shape from both functions.

        In a full call both are called, else only ``reduced``. Several of a block are told apart by their order.
        """
        record, kept = self.record, self.kept
        if record is None or not self.keeps(block):
            return reduced()
        self.visits[block.name] = visit = self.visits.get(block.name, 0) + 1
        place = (block.name, visit)
        compute = whole if record.full else reduced
        timed = self.timed.get(block.name) if record.full and not is_compiling() else None
        begun = None if timed is None else self.gains.moment(timed.device)
        output: Tensor = compute() if is_compiling() else kept.with_room(compute)
        if not record.full:
            difference = record.differences.get(place)
            if difference is None or difference.shape != output.shape or difference.device != output.device:
                self.missed = True
                return output
            return output + difference.to(output.dtype)  # which the guard may have measured in another one
        if is_compiling():  # what a graph allocates is not kept: `settle` makes a copy outside of it
            self.made[place] = output - reduced()
        elif not record.last:
            middle = None if timed is None else self.gains.moment(timed.device)
            kept.keep(record, place, lambda: output - reduced())
            if timed is not None:
                self.gains.note(timed, begun, middle, self.gains.moment(timed.device))
        return output

    def around_attention(
        self, block: Block, x: Tensor, size: Size, masked: bool, attend: Callable[[Tensor, Tensor | None], Any]
    ) -> Any:
        """Return the output of a self-attention over ``x``, with fewer keys or fewer tokens altogether.

        ``attend`` computes it for tokens and their keys, None for the tokens themselves; ``masked``: with a mask.
        """
        reduction = self.reduction(block, x, size)
        if reduction is not None and masked:
            self.activity.fall_back(MASKED)
            self.merged.pop(block.number, None)
            reduction = None
        if reduction is None or not self.settings.merge_attn:
            return attend(x, None)
        if isinstance(reduction, Matching):
            return self.restored(block, reduction, attend(reduction.reduce(x), None))

        def fewer() -> Any:
            output = attend(x, reduction.reduce(x))
            self.activity.use(block.name, reduction.tokens, reduction.kept)
            return output

        return self.attend(block, lambda: attend(x, None), fewer)

    def around_layer(self, block: Block, x: Tensor, compute: Callable[[Tensor], Any]) -> Any:
        """Return the output of another layer for the tokens ``x`` of a block, merged as for its self-attention."""
        reduction = self.merged.get(block.number)
        if reduction is not None and not reduction.fits(x):
            self.activity.fall_back(OTHER_LAYER)
            reduction = None
        return compute(x) if reduction is None else self.restored(block, reduction, compute(reduction.reduce(x)))

    def restored(self, block: Block, reduction: Matching, output: Tensor) -> Tensor:
        """Return the output of a block's layer for all tokens, and count what was done.

        It is returned as it is, a fallback, if another layer has done that already.
        """
        if output.shape[1] == reduction.tokens != reduction.kept:
            self.activity.fall_back(OTHER_OUTPUT)
            return output
        self.activity.use(block.name, reduction.tokens, reduction.kept)
        return reduction.restore(output)

    def settle(self) -> None:
        """Count the call, and keep what compiled code has made in it; a host calls it when the call is over."""
        record, visits, made = self.record, self.visits, self.made
        self.visits, self.made = {}, {}
        if record is None or not visits:
            return
        self.kept.count(record.full, self.missed)
        for place in () if record.last else tuple(made):
            self.kept.keep(record, place, made.pop(place).clone)
        if record.last:
            self.kept.drop(record)


def merged_layer(block: Block, forward: Function, call: Callable[[], TokenCall | None]) -> Function:
    """Return ``forward`` of a layer whose first argument is the image, with a block's merging around it.

    ``call`` returns the call that goes on; None outside of one.
    """

    @functools.wraps(forward)
    def merged(x: Tensor, *args: object, **options: object) -> Any:
        now = call()
        if now is None:
            return forward(x, *args, **options)
        return now.around_layer(block, x, lambda tokens: forward(tokens, *args, **options))

    return merged
