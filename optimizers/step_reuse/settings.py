"""Settings of Reuse Steps."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.choices import CHOICES
from ...core.phrases import phrase
from ...core.settings import Settings, choice, number
from .history import FORECASTS

BUDGETS = {name: choice.limit for name, choice in CHOICES.items()}
"""Budgets with a name: how far the picture may move, as a share of what another seed changes."""

_NAMED = ", ".join(f"{value:g} {name}" for name, value in BUDGETS.items())
TOOLTIPS = {
    "budget": "How far the picture may move from the plain one, as a share of what another seed "
    f"changes: {_NAMED}. Larger is faster, 0 leaves nothing out.",
}
"""Text for the user about the setting that every host shows."""


@dataclass(frozen=True)
class StepReuseSettings(Settings):
    """Settings of Reuse Steps; `InvalidSetting` if a value is not allowed.

    Attributes:
        budget: how far the picture may move from the one without the node, as a share of what another seed changes.
        forecast: ``auto`` takes the one that was nearest in the steps that were computed.
        use_forecast: whether whole steps may be forecast.
        use_guidance: whether the difference between the positive and the negative pass may be used again.
    """

    budget: float = number(BUDGETS["balanced"], 0.0, 1.0)
    forecast: str = choice("auto", ("auto", *FORECASTS))
    use_forecast: bool = True
    use_guidance: bool = True

    def clauses(self) -> tuple[str, ...]:
        sources = [f"forecast {self.forecast}"] if self.use_forecast else []
        sources += ["guidance reused"] if self.use_guidance else []
        return (
            phrase("may move the picture by {percent:g} % of what another seed changes", percent=self.budget * 100),
            ", ".join(sources) or "nothing may be reused",
        )
