"""Apply ToMe without a host: when it is on, which method a block gets, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from ...core.activity import Activity, Summary
from ...core.phrases import phrase
from ...core.technique import TOKEN_MERGING, Policy, WholeSteps
from .full_steps import PARTS, FullSteps
from .method import Reduction
from .methods import METHODS
from .residual import MERGED_INSIDE, SHARED_CODE, UNTOLD, Evaluation, ResidualCall, Residuals
from .settings import TokenMergingSettings

# Filled with `str.format`, which keeps code under torch.compile in one graph.
_TOO_FEW = "{tokens} tokens are too few to gain from fewer"
ALL_KEPT = "at this ratio, so small a grid keeps all of its tokens"


class Schedule(Protocol):
    """Where in the sampling schedule a model call stands. To ask can wait for the GPU."""

    def is_between(self, start_percent: float, end_percent: float) -> bool:
        """Return whether the call lies between two points of the schedule: 0 is its start, 1 its end."""

    def limits(self, start_percent: float, end_percent: float) -> tuple[float, float]:
        """Return the noise levels of two points of the schedule, the lower one first."""


class TokenMergingPolicy(Policy):
    """What merging tokens has in common in all kinds of models and all hosts.

    ``places`` names the places that can have fewer tokens; ``other_layers``: whether layers besides self-attention
    shall; ``allocating``: the host's context in which to allocate what outlives a block of the network.
    """

    kind = TOKEN_MERGING
    title = "Apply ToMe"

    def __init__(self, settings: TokenMergingSettings, places: str, total_places: int) -> None:
        self.settings = settings
        self.places, self.total_places = places, total_places
        self.method = METHODS[settings.method]
        self.other_layers = bool(settings.other_layers)
        self.allocating: Callable[[], AbstractContextManager[object]] = nullcontext
        self.residuals = Residuals()

    def is_active(self, schedule: Schedule, activity: Activity) -> bool:
        """Return whether tokens are to be merged in the model call that begins; count it if they are not."""
        settings = self.settings
        active = settings.does_something and (
            settings.whole_schedule or schedule.is_between(settings.start_percent, settings.end_percent)
        )
        activity.idle_calls += not active
        return active

    def method_for(
        self, place: str, tokens: int, device: torch.device, activity: Activity, residual: ResidualCall | None = None
    ) -> type[Reduction] | None:
        """Return what reduces this many tokens at ``place``, or None, which is noted, where nothing would be gained.

        ``residual``: see `residual_call`; where it is given, what is best beside it.
        """
        method = self.method.for_block(tokens, device.type, self.other_layers)
        if method is None:
            activity.skip(place, _TOO_FEW.format(tokens=tokens))
            return None
        return method if residual is None else method.beside_residual()

    def began(self) -> None:
        self.residuals = Residuals(self.allocating)

    def ended(self) -> None:
        self.residuals.drop()

    @property
    def keeps(self) -> bool:
        """Whether the difference that reducing makes to self-attention is kept."""
        return self.settings.residual != "off" and self.settings.does_something and self.settings.merge_attn

    @property
    def uneven(self) -> bool:
        return self.keeps

    def refused_by(self, scope: str) -> str:
        """Return why nothing can be kept in code that Compile UNet has compiled in a ``scope``, "" for none."""
        if scope == "repeated_blocks":
            return SHARED_CODE
        return MERGED_INSIDE if scope and self.shrinks_queries else ""

    def whole_steps(self, levels: Sequence[float]) -> WholeSteps | None:
        ratio = self.settings.ratio
        steps = FullSteps(levels, ratio * PARTS[self.settings.residual]) if self.keeps else None
        if steps is None or not steps.pay(ratio):
            return None
        return WholeSteps(len(steps.places) / steps.steps, steps.age)

    def residual_call(
        self,
        evaluation: Evaluation | None,
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
        return self.residuals.call(evaluation, levels, passes, settings.ratio, PARTS[settings.residual], again)

    def saved(self, activity: Activity) -> tuple[str, ...]:
        return ()

    def summarize(self, activity: Activity) -> Summary:
        settings, used = self.settings, len(activity.used)
        calls, fallbacks = activity.model_calls, activity.fallback_count
        counts = {"blocks": used, "all_blocks": self.total_places, "model_calls": calls, "fallbacks": fallbacks}
        if not settings.does_something:
            options = phrase("all three merge options are off")
            reason = phrase("ratio is 0") if settings.ratio == 0 else options
            return Summary("inactive", phrase("off: {reason}", reason=reason), counts)
        if calls and activity.idle_calls == calls:
            headline = phrase(
                "not active: no step was between start and end percent ({start:g} to {end:g})",
                start=settings.start_percent,
                end=settings.end_percent,
            )
            return Summary("inactive", headline, counts)
        details = (*self.saved(activity), *activity.fallback_lines(), *activity.skipped_lines())
        if not used:
            text = phrase("not active in any of {total} {places}", total=self.total_places, places=self.places)
            if self.method.can_decline and activity.skipped and not fallbacks:
                text = phrase("{method} switched itself off: it would not have been faster", method=settings.method)
            return Summary("inactive", text, counts, details)
        if activity.idle_calls:
            details = (f"in {calls - activity.idle_calls} of {calls} model calls", *details)
        sizes = ", ".join(f"{before} -> {after}" for before, after in activity.token_sizes()) or "no"
        details = (f"{sizes} {'tokens' if self.shrinks_queries else 'keys and values'}", *details)
        details = (*details, *(self.residuals.lines() if self.keeps else ()))
        text = phrase("active in {used} of {total} {places}", used=used, total=self.total_places, places=self.places)
        return Summary("partly" if fallbacks else "active", text, counts, details)

    @property
    def shrinks_queries(self) -> bool:
        """Whether queries become fewer too, and not keys and values only."""
        return self.method.shrinks_queries or self.other_layers


def counted(place: str, tokens: int, kept: Tensor, activity: Activity, all_stay: str = ALL_KEPT) -> Tensor | None:
    """Return ``kept`` if fewer than ``tokens`` stay at ``place``, else None; and count which, or why ``all_stay``."""
    if kept.shape[0] == tokens:
        activity.skip(place, all_stay)
        return None
    activity.use(place, tokens, kept.shape[0])
    return kept
