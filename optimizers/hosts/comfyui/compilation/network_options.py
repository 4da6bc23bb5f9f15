"""Read what a model call is given in its ``transformer_options``."""

from __future__ import annotations

from typing import Any

from ..attention_chain import SLOT


def reads_places(transformer_options: dict[str, Any]) -> bool:
    """Return whether a model call has patches: Python of other nodes, which may ask at which block or step it is."""
    return any(transformer_options.get(name) for name in ("patches", "patches_replace", SLOT))
