"""Limited Guidance, whatever the host: when the negative pass is left out, and how that is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...optimizers.core.activity import Activity, Summary
from ...optimizers.core.phrases import phrase
from ...optimizers.core.settings import Settings, number
from ...optimizers.core.technique import Policy

TOOLTIP = "Guidance stops below this share of the first noise level. Larger is faster; 0 changes nothing."


@dataclass(frozen=True)
class GuidanceSettings(Settings):
    """``stop``: below this share of the first noise level there is no guidance."""

    stop: float = number(0.1, 0.0, 1.0)


class LimitedGuidance(Policy):
    """Guidance in an interval (Kynkäänniemi et al., arXiv 2404.07724): at low noise it changes little."""

    kind = "limited_guidance"
    title = "Limited Guidance"

    def __init__(self, settings: GuidanceSettings) -> None:
        self.settings = settings

    def guided(self, level: float, levels: Sequence[float]) -> bool:
        return level >= self.settings.stop * levels[0]

    def clauses(self) -> tuple[str, ...]:
        return (phrase("no guidance below {stop:g} of the first noise level", stop=self.settings.stop),)

    def summarize(self, activity: Activity) -> Summary:
        alone, calls = activity.used.get("alone", 0), activity.model_calls
        if not alone:
            return Summary("inactive", phrase("no negative pass was left out"), details=activity.fallback_lines())
        return Summary("active", phrase("no negative pass in {alone} of {calls} calls", alone=alone, calls=calls))
