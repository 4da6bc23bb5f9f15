"""Apply ToMe without a host: which blocks of a UNet are reduced, when, by what, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ...core.activity import Activity, Summary
from ...core.devices import is_compiling
from ...core.errors import InvalidSetting, UnsupportedModel
from ...core.phrases import phrase
from ...core.technique import TOKEN_MERGING, Policy, WholeSteps
from ..families import Block, Size
from .blocks import CallState, restored_output
from .grid import Partition
from .method import BlockCall, Reduction
from .methods import METHODS
from .residual import MERGED_INSIDE, SHARED_CODE, UNTOLD, ResidualCall, Residuals, SamplingStep, where_kept
from .settings import TokenMergingSettings
from .stored import FullSteps

OTHER_TOKENS = "another node or extension had already rearranged the tokens (ToMe, HyperTile, ...)"
MASKED = "an attention mask over the image was given, and merged tokens have no place in it"

# Filled with `str.format`, which keeps code under torch.compile in one graph.
_TOO_FEW = "{tokens} tokens are too few to gain from fewer"
_ALL_KEPT = "at this ratio, so small a grid keeps all of its tokens"
_COARSE = "coarser than the two finest levels: with residual they lose more than they save"

B = TypeVar("B", bound=Block)


def no_unet(model: str, helping: str) -> UnsupportedModel:
    """Return the error for a model without a UNet; ``helping``: what makes it faster, in words."""
    return UnsupportedModel(
        f"Apply ToMe is for UNets (SD 1.x, SD 2.x, SDXL, SVD), and {model} has none: {helping} make it faster.",
        brief=phrase("it is for UNets only"),
    )


class Schedule(Protocol):
    """Where in the sampling schedule a model call stands. To ask can wait for the GPU."""

    def is_between(self, start_percent: float, end_percent: float) -> bool:
        """Return whether the call lies between two points of the schedule: 0 is its start, 1 its end."""

    def limits(self, start_percent: float, end_percent: float) -> tuple[float, float]:
        """Return the noise levels of two points of the schedule, the lower one first."""


class TokenMergingPolicy(Policy, Generic[B]):
    """Apply ToMe in one UNet; `UnsupportedModel` if the settings would reach no block.

    Args:
        model: for errors.
        blocks: with self-attention over the image, in the order of execution. The attribute has those that are merged.

    Attributes:
        first_level: ``downsample`` of the finest of them.
        draws: whether anything is chosen at random, so that the number of the step must be known.
        other_layers: whether layers besides self-attention shall have fewer tokens.
        allocating: the host's context in which to allocate what outlives a block of the network.
    """

    kind = TOKEN_MERGING
    title = "Apply ToMe"

    def __init__(self, model: str, blocks: Sequence[B], settings: TokenMergingSettings) -> None:
        self.settings, self.total_places = settings, len(blocks)
        self.places = phrase("self-attention blocks") if settings.merge_attn else phrase("blocks")
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
        self.method = METHODS[settings.method]
        self.other_layers = bool(settings.other_layers)
        self.draws = settings.use_rand and self.method.uses_cells
        self.allocating: Callable[[], AbstractContextManager[object]] = nullcontext
        self.residuals = Residuals()
        self._prepared: dict[Hashable, Reduction | None] = {}
        self._numbers: dict[Hashable, Tensor] = {}

    def clauses(self) -> tuple[str, ...]:
        levels = sorted({block.downsample for block in self.blocks})
        names = ", ".join("the latent's size" if level == 1 else f"1/{level} of it" for level in levels)
        reached = f"eligible: {len(self.blocks)} of {self.total_places} {self.places} (at {names})"
        return self.settings.describe(), reached

    def is_active(self, schedule: Schedule, activity: Activity) -> bool:
        """Return whether tokens are to be merged in the model call that begins; count it if they are not."""
        settings = self.settings
        active = settings.does_something and (
            settings.whole_schedule or schedule.is_between(settings.start_percent, settings.end_percent)
        )
        activity.idle_calls += not active
        return active

    def began(self) -> None:
        self.ended()  # somebody may have called the network outside of a run
        self.residuals = Residuals(self.allocating)

    def ended(self) -> None:
        self.residuals.drop()
        self._prepared.clear()
        self._numbers.clear()

    @property
    def keeps(self) -> bool:
        """Whether the difference that reducing makes to self-attention is kept."""
        return self.settings.residual != "off" and self.settings.does_something and self.settings.merge_attn

    uneven = keeps

    def refused_by(self, scope: str) -> str:
        """Return why nothing can be kept in code that Compile UNet has compiled in a ``scope``, "" for none."""
        if scope == "repeated_blocks":
            return SHARED_CODE
        return MERGED_INSIDE if scope and self.shrinks_queries else ""

    def whole_steps(self, levels: Sequence[float]) -> WholeSteps | None:
        steps = FullSteps(levels, self.settings.ratio) if self.keeps else None
        if steps is None or not steps.pay:
            return None
        return WholeSteps(len(steps.places) / steps.steps, steps.mean_distance)

    def residual_call(
        self,
        evaluation: SamplingStep | None,
        passes: Hashable,
        schedule: Schedule,
        refusal: str = "",
        again: bool = False,
    ) -> ResidualCall | None:
        """Return what a call of the network in which tokens are reduced does with differences; None for nothing.

        ``refusal``: why the host cannot do it in this call. For the rest see `Residuals.call`.
        """
        settings = self.settings
        if evaluation is None or refusal:
            self.residuals.leave_out(refusal or UNTOLD)
            return None
        levels = evaluation.levels
        if not settings.whole_schedule:
            last, first = schedule.limits(settings.start_percent, settings.end_percent)
            levels = [level for level in levels[:-1] if last < level <= first] + [last]
        return self.residuals.call(evaluation, levels, passes, settings.ratio, again)

    def summarize(self, activity: Activity) -> Summary:
        settings, used = self.settings, len(activity.used)
        calls, fallbacks = activity.model_calls, activity.fallback_count
        counts = {"blocks": used, "all_blocks": self.total_places, "model_calls": calls, "fallbacks": fallbacks}
        if not settings.does_something:
            why = phrase("ratio is 0") if settings.ratio == 0 else phrase("all three merge options are off")
            return Summary("inactive", phrase("off: {reason}", reason=why), counts)
        if calls and activity.idle_calls == calls:
            headline = phrase(
                "not active: no step was between start and end percent ({start:g} to {end:g})",
                start=settings.start_percent,
                end=settings.end_percent,
            )
            return Summary("inactive", headline, counts)
        details = (*activity.fallback_lines(), *activity.skipped_lines())
        if not used:
            text = phrase("not active in any of {total} {places}", total=self.total_places, places=self.places)
            if self.method.can_decline and activity.skipped and not fallbacks:
                text = phrase("{method} switched itself off: it would not have been faster", method=settings.method)
            return Summary("inactive", text, counts, details)
        if activity.idle_calls:
            details = (f"in {calls - activity.idle_calls} of {calls} model calls", *details)
        pairs = sorted(set(activity.tokens.values()), reverse=True)
        sizes = ", ".join(f"{before} -> {after}" for before, after in pairs) or "no"
        details = (f"{sizes} {'tokens' if self.shrinks_queries else 'keys and values'}", *details)
        details = (*details, *(self.residuals.lines() if self.keeps else ()))
        text = phrase("active in {used} of {total} {places}", used=used, total=self.total_places, places=self.places)
        return Summary("partly" if fallbacks else "active", text, counts, details)

    @property
    def shrinks_queries(self) -> bool:
        """Whether queries become fewer too, and not keys and values only."""
        return self.method.shrinks_queries or self.other_layers

    def reduction(self, block: B, tokens: Tensor, size: Size, state: CallState) -> Reduction | None:
        """Decide how ``tokens`` ``[batch, rows * columns, channels]`` of a block are reduced; None, noted, if not.

        Raises `InvalidSetting` if cells are larger than the grid.
        """
        settings, activity, (rows, columns) = self.settings, state.activity, size
        count, device = tokens.shape[1], tokens.device
        state.reductions.pop(block.number, None)  # of tokens before these
        if count != rows * columns:
            activity.fall_back(OTHER_TOKENS)
            return None
        residual = where_kept(state.residual, block.name)
        if residual is not None and block.downsample > self._second_level:
            activity.skip(block.name, _COARSE)
            return None
        # Reduced without what is kept, they would move the picture most and save least.
        too_few = state.residual is not None and not state.residual.gains(count, device)
        method = None if too_few else self.method.for_block(count, device.type, self.other_layers)
        if method is None:
            activity.skip(block.name, _TOO_FEW.format(tokens=count))
            return None
        method = method if residual is None else method.beside_residual()
        if method.uses_cells and (settings.sx > columns or settings.sy > rows):
            raise InvalidSetting(
                f"Apply ToMe: sx is {settings.sx} and sy is {settings.sy}, but block {block.name} has only {columns} x "
                f"{rows} tokens for an image of this size.",
                "Make sx and sy smaller, lower max_downsample, or make the image larger.",
            )
        ratio = settings.ratio
        if residual is None and settings.alone is not None:
            ratio = settings.alone if block.downsample == self.first_level else 0.0
        call = BlockCall(rows, columns, ratio, settings, state.step, block.number)
        # Compiled code works all of it out by itself: what is kept would be another input of its graph.
        if is_compiling():
            reduction = method.plan(tokens, call)
        elif residual is None or self.other_layers:
            reduction = self._planned(method, block, tokens, call, state)
        else:
            planned = partial(self._planned, method, block, tokens, call, state)
            reduction = residual.reduction(block.name, tokens, planned)
        if reduction.kept >= reduction.tokens:
            activity.skip(block.name, _ALL_KEPT)
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

        def fewer() -> Any:
            kept = reduction.reduce(x)
            if reduction.shrinks_queries:
                return restored_output(reduction, attend(kept, None), block.name, state.activity)
            output = attend(x, kept)
            state.activity.use(block.name, reduction.tokens, reduction.kept)
            return output

        return state.attend(block.name, lambda: attend(x, None), fewer)

    def _planned(
        self, method: type[Reduction], block: B, tokens: Tensor, call: BlockCall, state: CallState
    ) -> Reduction:
        """Return how a block is reduced, made once for a sampling run where its tokens need not be looked at."""
        key = (method, call.height, call.width, call.ratio, tokens.device)
        if key not in self._prepared:
            self._prepared[key] = method.prepare(call, tokens.device)
        if (prepared := self._prepared[key]) is not None:
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
