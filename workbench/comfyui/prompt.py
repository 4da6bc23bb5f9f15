"""A prompt: the form in which ComfyUI runs a workflow, its "API format"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import InvalidSetting

Prompt = Mapping[str, Mapping[str, Any]]
"""Nodes by execution id: ``{"4": {"class_type": ..., "inputs": {"model": ["3", 0], "steps": 20}}}``."""

_MOST_NODES = 3000
"""Looking at a workflow takes time that grows with the square of its nodes, and nothing can cancel it."""

Link = tuple[str, int]
"""The node that a value comes from, and which of its outputs."""


def require_prompt(sent: Any) -> Prompt:
    """Return what was given, if it is a prompt.

    Raises:
        InvalidSetting: if it is anything else.
    """
    if not isinstance(sent, dict) or not all(
        isinstance(node, dict) and isinstance(node.get("class_type"), str) and isinstance(node.get("inputs", {}), dict)
        for node in sent.values()
    ):
        raise InvalidSetting(
            "This is no workflow in the API format.",
            "Save it in ComfyUI with File > Export (API). It has class_type and inputs of each node.",
        )
    if len(sent) > _MOST_NODES:
        raise InvalidSetting(f"This workflow has {len(sent)} nodes.", f"At most {_MOST_NODES} are looked at.")
    return {str(id): {**node, "inputs": node.get("inputs", {})} for id, node in sent.items()}


def link_of(value: Any) -> Link | None:
    """Return where an input's value comes from; None for a value of its own."""
    if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[1], int):
        return str(value[0]), value[1]
    return None
