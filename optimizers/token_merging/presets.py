"""Ready-made settings, chosen from the measurements in benchmarks/results."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...core.errors import require_choice

CUSTOM = "custom"

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Half of the keys and values at the finest level only.
        "quality": MappingProxyType(
            {"method": "kv_downsample", "ratio": 0.5, "max_downsample": "auto", "level_decay": 1.0}
        ),
        # Every second row and column of keys and values, at the two finest levels of SD 1.x; of SDXL, all levels.
        "balanced": MappingProxyType(
            {"method": "kv_downsample", "ratio": 0.75, "max_downsample": 4, "level_decay": 0.67}
        ),
        # One key in sixteen at the finest level, one in four below.
        "fast": MappingProxyType({"method": "kv_downsample", "ratio": 0.9375, "max_downsample": 4, "level_decay": 0.8}),
    }
)
"""What each preset sets; every other setting keeps the value it was given."""

PRESET_NAMES = (CUSTOM, *PRESETS)


def apply_preset(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with what the preset sets in their place; ``custom`` sets nothing.

    Raises:
        InvalidSetting: if there is no preset of that name.
    """
    require_choice("preset", name, PRESET_NAMES)
    return {**settings, **PRESETS.get(name, {})}
