"""Nodes of ComfyUI, each made of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NODES: dict[str, type] = {}
"""By the names that prompts have for them."""

Run = Callable[..., Any]


def node(name: str, /, *returns: str, optional: dict[str, Any] | None = None, **required: Any) -> Callable[[Run], Run]:
    """Make a node of a function.

    Args:
        name: of the node.
        *returns: types of what the function returns; one that returns nothing to other nodes shows something.
        optional: inputs that may be left out, as ComfyUI describes them.
        **required: the other inputs.
    """
    inputs = {"required": required, "optional": optional or {}}

    def make(function: Run) -> Run:
        kind = {"RETURN_TYPES": returns, "OUTPUT_NODE": not returns, "FUNCTION": "run", "CATEGORY": "trust"}
        methods = {"INPUT_TYPES": classmethod(lambda cls: inputs), "run": staticmethod(function)}
        NODES[name] = type(name, (), kind | methods)
        return function

    return make
