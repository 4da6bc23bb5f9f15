"""What a person can choose about reusing steps."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import InvalidSetting, require_boolean, require_choice, require_number
from ...core.phrases import joined, phrase, translatable
from .forecasts import FORECASTS
from .plan import Plan

BUDGETS = {"lossless": 0.02, "balanced": 0.05, "fast": 0.15}
"""Budgets with a name: how far the picture may move, as a share of what another seed changes."""

SOURCES = ("forecast", "guidance")
"""Where time is saved. Each can be used alone."""

FORECAST_CHOICES = ("auto", *FORECASTS)


@dataclass(frozen=True)
class StepReuseSettings:
    """Settings of the node Reuse Steps and of ``ReuseSteps`` in Python.

    Attributes:
        budget: how far the picture may move from the one without the node, as a share of what another seed changes.
        forecast: which forecast; ``auto`` takes the one that was nearest in the steps that were computed.
        use_forecast: whether whole steps may be forecast.
        use_guidance: whether the difference between the positive and the negative pass may be used again.
        plan: which steps to skip, if somebody has found that out; the budget still holds.

    Raises:
        InvalidSetting: if a value is not allowed.
    """

    budget: float = BUDGETS["balanced"]
    forecast: str = "auto"
    use_forecast: bool = True
    use_guidance: bool = True
    plan: Plan | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        require_number("budget", self.budget, 0.0, 1.0)
        require_choice("forecast", self.forecast, FORECAST_CHOICES)
        for name in ("use_forecast", "use_guidance"):
            require_boolean(name, getattr(self, name))
        if not isinstance(self.plan, (Plan, type(None))):
            raise InvalidSetting(
                f"plan is of the type {type(self.plan).__name__}.", "Give a Plan, or None for the online rule alone."
            )

    def clauses(self) -> tuple[str, ...]:
        """Return e.g. ``may move the picture by 5 % of what another seed changes`` and ``forecast auto``."""
        sources: list[str] = []
        if self.use_forecast:
            sources.append(phrase("forecast {how}", how=self.forecast))
        if self.use_guidance:
            sources.append(translatable("guidance reused"))
        nothing = translatable("nothing may be reused")
        parts: list[str] = [
            phrase("may move the picture by {percent:g} % of what another seed changes", percent=self.budget * 100),
            joined(", ", sources) if sources else nothing,
        ]
        if self.plan is not None:
            parts.append(phrase("follows a plan for {model}", model=self.plan.title))
        return tuple(parts)
