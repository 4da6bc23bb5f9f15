"""Apply ToMe without a host: which blocks of a UNet are reduced, in which calls, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

from torch import Tensor

from ..core.activity import Activity, Summary
from ..core.errors import UnsupportedModel
from ..core.phrases import phrase
from ..core.technique import STEP_REUSE, TOKEN_MERGING, Policy, WholeSteps
from ..models.families import Block
from .call import TokenCall
from .gains import FullSteps, Gains
from .kept import UNTOLD, Kept, SamplingStep
from .tome_settings import TokenMergingSettings

B = TypeVar("B", bound=Block)
C = TypeVar("C", bound=TokenCall)


def no_unet(model: str, helping: str) -> UnsupportedModel:
    """Return the error for a model without a UNet; ``helping``: what makes it faster, in words."""
    return UnsupportedModel(
        f"Apply ToMe is for UNets (SD 1.x, SD 2.x, SDXL, SVD), and {model} has none: {helping} make it faster.",
        brief=phrase("it is for UNets only"),
    )


class TokenMergingPolicy(Policy, Generic[B]):
    """Apply ToMe in one UNet; `UnsupportedModel` if the settings would reach no block.

    Args:
        model: for errors.
        blocks: with self-attention over the image, in the order of execution. The attribute has those that are merged.

    Attributes:
        draws: whether anything is chosen at random, so that the number of the step must be known.
        allocating: the host's context in which to allocate what outlives a block of the network.
        kept: of the latest sampling run.
        gains: what is known of times, where a host keeps them.
    """

    kind = TOKEN_MERGING
    neutral = True
    title = "Apply ToMe"

    def __init__(self, model: str, blocks: Sequence[B], settings: TokenMergingSettings) -> None:
        self.settings, self.total_places, self._model = settings, len(blocks), model
        self.places = phrase("self-attention blocks") if settings.merge_attn else phrase("blocks")
        if not blocks:
            raise UnsupportedModel(
                f"{model} has no self-attention over the image, so there are no tokens to merge.",
                "Leave token merging out for this model.",
            )
        levels = sorted({block.downsample for block in blocks})
        self._levels = (levels[0], levels[:2][-1])
        limit = levels[0] if settings.max_downsample == "auto" else settings.max_downsample
        self.blocks = tuple(block for block in blocks if block.downsample <= limit)
        if not self.blocks:
            raise UnsupportedModel(
                f"max_downsample is {limit}, but {model} has its first self-attention at downsample {levels[0]}: no "
                "block would be merged.",
                f"Set max_downsample to auto or to one of: {', '.join(map(str, levels))}.",
            )
        self._numbers = {
            level: tuple(block.number for block in self.blocks if block.downsample == level) for level in levels
        }
        self.draws = settings.use_rand and settings.merges
        self.allocating: Callable[[], AbstractContextManager[object]] = nullcontext
        self.kept, self.gains = Kept(), Gains()

    def clauses(self) -> tuple[str, ...]:
        levels = sorted({block.downsample for block in self.blocks})
        names = ", ".join("the latent's size" if level == 1 else f"1/{level} of it" for level in levels)
        reached = f"eligible: {len(self.blocks)} of {self.total_places} {self.places} (at {names})"
        return self.settings.describe(), reached, *self.notes

    def began(self) -> None:
        self.ended()  # somebody may have called the network outside of a run
        self.kept = Kept(self.allocating)

    def ended(self) -> None:
        self.kept.drop_all()

    @property
    def uneven(self) -> bool:
        return self.settings.keeps

    def whole_steps(self, levels: Sequence[float]) -> WholeSteps | None:
        steps = FullSteps(levels, self.settings.ratio) if self.settings.keeps else None
        if steps is None or not steps.pay:
            return None
        return WholeSteps(len(steps.places) / steps.steps, steps.mean_distance)

    def call(
        self,
        kind: type[C],
        activity: Activity,
        step: int | Tensor = 0,
        evaluation: SamplingStep | None = None,
        passes: Hashable = (),
        refusal: str = "",
        again: bool = False,
        beside: Iterable[Policy] = (),
        patched: bool = False,
    ) -> C:
        """Return the reduction of a call of the network, if the settings do something.

        ``kind``: the host's; ``step``: its number, where anything is drawn; ``evaluation``: where it stands in the run;
        ``refusal``: why the host cannot keep a difference in it; ``beside``: what else is on the network; ``patched``:
        whether other code runs inside of it. For the rest see `Kept.record`.
        """
        settings, record = self.settings, None
        if settings.keeps and (evaluation is None or refusal):
            self.kept.leave_out(refusal or UNTOLD)
        elif settings.keeps and evaluation is not None:
            record = self.kept.record(evaluation, passes, settings.ratio, again)
        made = kind(settings, self._levels, self.kept, activity, step, record)
        made.numbers = self._numbers
        if record is not None:
            if not record.full:
                self.gains.decide()
            # Not Reuse Steps, which leaves out whole calls: with and without it, attention is as slow and must be the
            # same.
            others = [one.describe() for one in beside if one.kind not in (self.kind, STEP_REUSE)]
            others += ["with other patches"] if patched else []
            made.gains, made.beside = self.gains, " | ".join([self._model, settings.describe(), "; ".join(others)])
        return made

    def summarize(self, activity: Activity) -> Summary:
        settings, used = self.settings, len(activity.used)
        calls, fallbacks = activity.model_calls, activity.fallback_count
        counts = {"blocks": used, "all_blocks": self.total_places, "model_calls": calls, "fallbacks": fallbacks}
        if not settings.does_something:
            why = phrase("ratio is 0") if settings.ratio == 0 else phrase("all three merge options are off")
            return Summary("inactive", phrase("off: {reason}", reason=why), counts)
        details = (*activity.fallback_lines(), *activity.skipped_lines())
        if not used and not self.kept.slow:
            text = phrase("not active in any of {total} {places}", total=self.total_places, places=self.places)
            if settings.method == "auto" and activity.skipped and not fallbacks:
                text = phrase("{method} is off: it would not have been faster", method=settings.method)
            return Summary("inactive", text, counts, details)
        if self.kept.slow and not activity.used.keys() - self.kept.slow:
            best = max(self.kept.slow.values())
            return Summary("inactive", phrase("off, {speedup}x here", speedup=f"{best:.2f}"), counts, details)
        pairs = sorted(set(activity.tokens.values()), reverse=True)
        sizes = ", ".join(f"{before} -> {after}" for before, after in pairs) or "no"
        details = (f"{sizes} {'tokens' if settings.merges else 'keys and values'}", *details)
        details = (*details, *(self.kept.lines() if settings.keeps else ()))
        text = phrase("active in {used} of {total} {places}", used=used, total=self.total_places, places=self.places)
        return Summary("partly" if fallbacks else "active", text, counts, details)
