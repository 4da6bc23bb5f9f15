"""The choices of the accordion in WebUI, as settings of techniques."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..attention import registry
from ..attention.attention_policy import AUTO
from ..attention.attention_policy import TOOLTIP as BACKEND_TOOLTIP
from ..core.choices import CHOICES as BY_NAME
from ..core.errors import not_allowed, one_of, require_choice
from ..core.technique import ATTENTION, STEP_REUSE, TOKEN_MERGING
from ..step_reuse.reuse_settings import TOOLTIPS as REUSE_TOOLTIPS
from ..step_reuse.reuse_settings import StepReuseSettings
from ..token_merging.tome_settings import TOOLTIPS as TOME_TOOLTIPS
from ..token_merging.tome_settings import TokenMergingSettings, level_of
from .webui_run import SettingsByKind

OFF, CUSTOM, AS_ABOVE, HOSTS_OWN = "Off", "Custom", "As above", "the host's own"

PRESETS = {choice.label: choice for choice in BY_NAME.values()}

CHOICES = (OFF, *PRESETS, CUSTOM)
BACKENDS = (HOSTS_OWN, AUTO, *registry.BACKENDS)

_BACKEND = BACKEND_TOOLTIP.replace("(ComfyUI's own)", "(of comfy-kitchen)")
TOOLTIPS = {**TOME_TOOLTIPS, **REUSE_TOOLTIPS, "backend": _BACKEND}
"""What the page says about single settings."""


@dataclass(frozen=True)
class Single:
    """The settings of single techniques, for the choice *Custom*; 0 leaves a technique out."""

    method: str = TokenMergingSettings.method
    ratio: float = TokenMergingSettings.ratio
    max_downsample: int | str = TokenMergingSettings.max_downsample
    budget: float = StepReuseSettings.budget
    backend: str = AUTO
    residual: str = TokenMergingSettings.residual

    def settings(self) -> SettingsByKind:
        require_choice("backend", self.backend, BACKENDS)
        level = level_of(self.max_downsample)
        merging = TokenMergingSettings(self.ratio, level, method=self.method, residual=self.residual)
        reuse = StepReuseSettings(budget=self.budget)
        chosen: dict[str, Any] = {ATTENTION: self.backend} if self.backend != HOSTS_OWN else {}
        chosen |= {TOKEN_MERGING: merging} if merging.ratio else {}
        return chosen | ({STEP_REUSE: reuse} if reuse.budget else {})


def settings_of(choice: str, single: Single) -> SettingsByKind:
    """Return the settings of one of ``CHOICES``; `InvalidSetting` for others, and for values out of range."""
    if choice == CUSTOM:
        return single.settings()
    if choice == OFF:
        return {}
    if choice not in CHOICES:
        raise not_allowed("Paceline's choice", choice, one_of(CHOICES))
    preset = PRESETS[choice]
    chosen: dict[str, Any] = {ATTENTION: AUTO}
    if preset.merging:
        chosen[STEP_REUSE] = StepReuseSettings(budget=preset.limit)
    return chosen
