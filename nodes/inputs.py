"""Inputs of nodes, with defaults, limits and choices from the settings that they set."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..core.settings import Settings, setting


def setting_input(owner: type[Settings], name: str, tooltip: str, **options: Any) -> io.Input:
    """Return the input for the field ``name`` of the settings ``owner``.

    ``options`` go before what the field says: ``id`` for an input of another name, ``options`` or ``max`` for less.
    """
    found = setting(owner, name)
    limits, default = found.metadata, found.default
    given: dict[str, Any] = {"id": name, "default": default, "tooltip": tooltip}
    if "choices" in limits:
        choices = [str(value) for value in limits["choices"]]
        return io.Combo.Input(**given | {"options": choices} | options)
    if isinstance(default, bool):
        return io.Boolean.Input(**given | options)
    if isinstance(default, str):
        return io.String.Input(**given | options)
    given |= {"min": limits["minimum"], "max": limits["maximum"]}
    if isinstance(default, int):
        return io.Int.Input(**given | options)
    return io.Float.Input(**given | {"step": 0.01} | options)
