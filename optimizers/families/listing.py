"""The families that Apply ToMe serves and refuses, as the README shows them."""

from __future__ import annotations

from . import NOT_EXAMINED, families
from .known import NO_HOOK


def families_table() -> str:
    """Return them as a Markdown table."""
    rows = [("Models", "Methods", "Where", "Notes")]
    for family in families():
        rows += [(models, "all", f"self-attention {where}", "") for models, where in family.unets]
        if family.tokens is not None:
            tokens = family.tokens
            where = f"{tokens.eligible} (tokens: {tokens.layout})"
            rows.append((tokens.models or family.name, "kv_downsample, auto", where, tokens.note))
        if family.not_reduced or not family.override_hook:
            rows.append((family.name, "none", "", family.not_reduced or NO_HOOK))
    rows.append(("all others", "none", "", NOT_EXAMINED))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---|---|---|---|", *lines[1:]])
