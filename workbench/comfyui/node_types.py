"""What goes into nodes and comes out of them, of every pack that ComfyUI has loaded."""

from __future__ import annotations

import sys
from typing import Any

_GROUPS = ("required", "optional")


def input_types(node: str) -> dict[str, str]:
    """Return the types of a node's inputs by their names; empty for a node that is not installed."""
    found = _class(node)
    if found is None:
        return {}
    try:
        groups = found.INPUT_TYPES()
        inputs = {name: entry for group in _GROUPS for name, entry in groups.get(group, {}).items()}
        return {name: entry[0] for name, entry in inputs.items() if isinstance(entry[0], str)}
    except Exception:  # other people's code, which may look for files; the node is then as good as unknown
        return {}


def output_types(node: str) -> tuple[str, ...]:
    """Return the types of a node's outputs; empty for a node that is not installed."""
    return tuple(str(kind) for kind in getattr(_class(node), "RETURN_TYPES", ()) or ())


def _class(node: str) -> Any:
    # Looked up, never imported: importing it would load ComfyUI's whole graph of modules.
    return getattr(sys.modules.get("nodes"), "NODE_CLASS_MAPPINGS", {}).get(node)
