"""What both ways of reducing tokens share: the settings, the part of the schedule, and the words of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core.activity import Activity, Summary
from ....core.errors import require_choice
from ....core.order import TOKEN_MERGING
from ...token_merging import TokenMergingSettings
from .components import DENOISER
from .host import Host, Technique
from .schedule import SchedulePosition

IMPLEMENTATIONS = ("paceline", "tomesd")


@dataclass(frozen=True)
class TokenMerging(TokenMergingSettings):
    """Merge similar tokens, or thin out keys and values: the settings of the node Apply ToMe, and one more.

    Attributes:
        implementation: ``"tomesd"`` runs the package of that name instead, for comparison: SD 1.x and 2.x UNets, only
            the settings that it has, not in one graph with Compile.

    Raises:
        InvalidSetting: as for ``TokenMergingSettings``.
    """

    implementation: str = "paceline"

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require_choice("implementation", self.implementation, IMPLEMENTATIONS)


class TokenReduction(Technique):
    """Apply ToMe on one denoiser.

    Args:
        settings: what to reduce and how much.

    Attributes:
        active: whether the call that runs is in the part of the schedule that was asked for.
        ratio_factor: factor of the ratio in this call.
    """

    kind = TOKEN_MERGING
    title = "Apply ToMe"
    roles = (DENOISER,)
    places = "self-attention blocks"
    settings: TokenMergingSettings

    def __init__(self, settings: TokenMergingSettings) -> None:
        super().__init__(settings)
        self.active = False
        self.ratio_factor = 1.0
        self.total_places = 0
        self.position = SchedulePosition(None)

    def before(self, host: Host, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find out whether this call is to be reduced."""
        settings = self.settings
        if self.position.is_new_run(host.pipeline):
            self.run_changed()
        timestep = kwargs.get("timestep", args[1] if len(args) > 1 else None)
        self.active = settings.does_something
        if self.active and (settings.start_percent, settings.end_percent) != (0.0, 1.0):
            percent = self.position.percent(timestep)
            self.active = settings.start_percent <= percent < settings.end_percent
        if not self.active:
            self.activity.idle_calls += 1
            return
        self.ratio_factor = self.position.ramp_factor(settings.ramp, timestep)

    def run_changed(self) -> None:
        """Drop what was kept from one call to the next."""

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``active in 16 of 16 self-attention blocks; 4096 -> 2048 tokens; 0 fallbacks``."""
        settings, fallbacks = self.settings, activity.fallback_count
        if not settings.does_something:
            return Summary("inactive", f"off: {settings.describe()}")
        if activity.idle_calls == activity.model_calls:
            window = f"{settings.start_percent:g} to {settings.end_percent:g}"
            return Summary("inactive", f"not active: no step was between start and end percent ({window})")
        details = (*activity.fallback_lines(), *activity.skipped_lines())
        if not activity.used:
            if activity.skipped and not fallbacks and settings.method == "auto":
                return Summary("inactive", "auto switched itself off: it would not have been faster", details=details)
            return Summary("inactive", f"not active in any of {self.total_places} {self.places}", details=details)
        sizes = ", ".join(f"{before} -> {after}" for before, after in activity.token_sizes()) or "no"
        text = f"active in {len(activity.used)} of {self.total_places} {self.places}; {sizes} tokens"
        if activity.idle_calls:
            text += f"; in {activity.model_calls - activity.idle_calls} of {activity.model_calls} model calls"
        return Summary("partly" if fallbacks else "active", f"{text}; {fallbacks} fallbacks", details=details)
