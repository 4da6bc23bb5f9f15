"""Reuse Steps as a technique: what it says about its settings and about a run."""

from __future__ import annotations

from ...core.activity import Activity, Summary
from ...core.technique import STEP_REUSE, Technique
from .outcome import Outcome
from .run import FEWEST_STEPS
from .settings import StepReuseSettings


class StepReusePolicy(Technique):
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
            if not details:
                details.append(
                    "no evaluation could be left out inside of the budget: a larger budget, or more steps, would help"
                )
            return Summary("inactive", "nothing was reused", counts, tuple(details))
        headline = f"{found.computed} of {found.evaluations} evaluations computed"
        if found.forecast:
            headline += f", {found.forecast} forecast"
        if found.guidance:
            headline += f", {found.guidance} without the negative pass"
        details.append(
            f"estimated distance to the picture without this node: {found.share:.1%} of what another seed changes, "
            f"budget {self.settings.budget:.1%}"
        )
        if found.largest:
            details.append(
                f"largest error of a forecast that was seen: {found.largest:.1%} of what another seed changes"
            )
        details.append(
            f"a plain run of {found.steps_in_same_time} steps takes as long: Compare Models draws it beside this one"
        )
        if found.methods:
            used = ", ".join(f"{name} {count}" for name, count in sorted(found.methods.items()))
            details.append(f"forecasts: {used}")
        if found.refused:
            details.append(f"{found.refused} skips of the plan were computed: they would have broken the budget")
        details.append(f"memory for earlier outputs: {found.bytes / 2**20:.1f} MiB")
        return Summary("active", headline, counts, tuple(details))


def too_few(steps: int) -> str:
    """Return why a schedule is left alone."""
    return f"{steps} steps are too few to leave one out: each changes the picture too much (at least {FEWEST_STEPS})"


def _percent(share: float, budget: float) -> float:
    return round(100 * share / budget, 1) if budget else 0.0
