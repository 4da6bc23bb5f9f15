"""What a person chooses in WebUI, as settings of techniques."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core.errors import not_allowed, one_of, require_choice
from ....core.technique import ATTENTION, STEP_REUSE, TOKEN_MERGING
from ...attention.policy import AUTO
from ...attention.registry import names
from ...step_reuse.settings import BUDGETS, StepReuseSettings
from ...token_merging import TokenMergingSettings, apply_preset
from .run import Choice

OFF, CUSTOM, AS_ABOVE, HOSTS_OWN = "Off", "Custom", "As above", "the host's own"

PRESETS = {"Same picture": "lossless", "Hardly visible": "balanced", "Fastest": "fast"}
"""What the choices are called elsewhere in the pack, where they do the same."""

CHOICES = (OFF, *PRESETS, CUSTOM)
BACKENDS = (HOSTS_OWN, AUTO, *names())


@dataclass(frozen=True)
class Single:
    """The settings of single techniques, for the choice *Custom*; 0 leaves a technique out."""

    method: str = "auto"
    ratio: float = 0.5
    max_downsample: str = "auto"
    budget: float = BUDGETS["balanced"]
    backend: str = AUTO

    def settings(self) -> Choice:
        require_choice("backend", self.backend, BACKENDS)
        level = self.max_downsample
        sizes: dict[str, Any] = {"max_downsample": int(level) if str(level).isdecimal() else level}
        merging = TokenMergingSettings(method=self.method, ratio=self.ratio, **sizes)
        reuse = StepReuseSettings(budget=self.budget)
        chosen: dict[str, Any] = {ATTENTION: self.backend} if self.backend != HOSTS_OWN else {}
        chosen |= {TOKEN_MERGING: merging} if merging.ratio else {}
        return chosen | ({STEP_REUSE: reuse} if reuse.budget else {})


def settings_of(choice: str, single: Single) -> Choice:
    """Return what is asked for by one of ``CHOICES``; `InvalidSetting` for others, and for settings out of range."""
    if choice == CUSTOM:
        return single.settings()
    if choice == OFF:
        return {}
    preset = PRESETS.get(choice)
    if preset is None:
        raise not_allowed("Paceline's choice", choice, one_of(CHOICES))
    chosen: dict[str, Any] = {ATTENTION: AUTO}
    if preset == "lossless":
        return chosen
    merging = TokenMergingSettings(**apply_preset(preset, {}))
    return chosen | {TOKEN_MERGING: merging, STEP_REUSE: StepReuseSettings(budget=BUDGETS[preset])}
