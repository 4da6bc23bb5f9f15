"""Reuse Steps as a technique: what it says about its settings and about a run."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.activity import Activity, Summary
from ...core.phrases import joined, phrase, translatable
from ...core.technique import STEP_REUSE, Policy
from .outcome import Outcome
from .run import FEWEST_STEPS
from .settings import StepReuseSettings


class StepReusePolicy(Policy):
    """What reusing steps does and says, whatever host.

    Args:
        settings: what was asked for.

    Attributes:
        outcome: of the last run.
    """

    kind = STEP_REUSE
    title = "Reuse Steps"

    def __init__(self, settings: StepReuseSettings) -> None:
        self.settings = settings
        self.outcome = Outcome()

    def clauses(self) -> tuple[str, ...]:
        """Return the settings."""
        return self.settings.clauses()

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``11 of 20 evaluations computed, 9 forecast``."""
        found = self.outcome
        counts = {
            "evaluations": found.evaluations,
            "computed": found.computed,
            "forecast": found.forecast,
            "guidance_reused": found.guidance,
            "budget_used_percent": _percent(found.share, self.settings.budget),
        }
        details = list(found.notes)
        if not found.forecast and not found.guidance:
            if found.evaluations:
                details.append(
                    translatable(
                        "no evaluation could be left out inside of the budget: a larger budget, or more steps, would "
                        "help"
                    )
                )
                details.extend(_doubts(found))
            return Summary("inactive", translatable("nothing was reused"), counts, tuple(details))
        parts = [
            phrase("{count} of {total} evaluations computed", count=found.computed, total=found.evaluations),
        ]
        if found.forecast:
            parts.append(phrase("{count} forecast", count=found.forecast))
        if found.guidance:
            parts.append(phrase("{count} without the negative pass", count=found.guidance))
        beyond = found.share > self.settings.budget
        if beyond:
            parts.append(translatable("estimate beyond the budget"))
            details.append(
                translatable(
                    "a later step changed more than the forecasts before it let expect: look at the picture with "
                    "Compare Models, or take a smaller budget"
                )
            )
        details.append(
            phrase(
                "estimated distance to the picture without this node: {share:.1%} of what another seed changes, "
                "budget {budget:.1%}",
                share=found.share,
                budget=self.settings.budget,
            )
        )
        if found.largest:
            details.append(
                phrase(
                    "largest error of a forecast that was seen: {share:.1%} of what another seed changes",
                    share=found.largest,
                )
            )
        details.append(
            phrase(
                "a plain run of {steps} steps takes as long: Compare Models draws it beside this one",
                steps=found.steps_in_same_time,
            )
        )
        details.extend(_doubts(found))
        if found.methods:
            used = ", ".join(f"{name} {count}" for name, count in sorted(found.methods.items()))
            details.append(phrase("forecasts: {used}", used=used))
        if found.refused:
            details.append(
                phrase(
                    "{count} skips of the plan were computed: they would have broken the budget", count=found.refused
                )
            )
        details.append(phrase("memory for earlier outputs: {size:.1f} MiB", size=found.bytes / 2**20))
        return Summary("partly" if beyond else "active", joined(", ", parts), counts, tuple(details))


def without_plan(mismatch: str) -> str:
    """Return what is said where a plan is not for a run."""
    return phrase("{why}: the budget's rule worked without it", why=mismatch)


def too_few(steps: int) -> str:
    """Return why a schedule is left alone."""
    return phrase(
        "{steps} steps are too few to leave one out: each changes the picture too much (at least {fewest})",
        steps=steps,
        fewest=FEWEST_STEPS,
    )


def _doubts(found: Outcome) -> Iterator[str]:
    """Yield why the estimate is rough."""
    if not found.measured:
        yield translatable("this sampler was not measured: the rule keeps more in hand, and its estimate is rough")
    if not found.unet:
        yield translatable("the rule was measured on one small transformer only: for this model its estimate is rough")


def _percent(share: float, budget: float) -> float:
    return round(100 * share / budget, 1) if budget else 0.0
