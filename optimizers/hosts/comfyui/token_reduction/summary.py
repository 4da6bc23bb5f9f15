"""What Apply ToMe did, in words."""

from __future__ import annotations

from .....core.activity import Activity, Summary
from ....token_merging import TokenMergingSettings


def summarize(
    settings: TokenMergingSettings,
    activity: Activity,
    total_blocks: int,
    blocks: str = "self-attention blocks",
    saved: tuple[str, ...] = (),
) -> Summary:
    """Return e.g. ``active in 16 of 16 self-attention blocks; 4096 -> 2048 tokens; 0 fallbacks``.

    Args:
        settings: what was asked for.
        activity: what happened.
        total_blocks: how many blocks there are.
        blocks: what to call them.
        saved: lines about the work that was saved.
    """
    if not settings.does_something:
        reason = "ratio is 0" if settings.ratio == 0 else "all three merge options are off"
        return Summary("inactive", f"off: {reason}")
    if activity.model_calls and activity.idle_calls == activity.model_calls:
        window = f"{settings.start_percent:g} to {settings.end_percent:g}"
        return Summary("inactive", f"not active: no step was between start and end percent ({window})")
    details = (*saved, *activity.fallback_lines(), *activity.skipped_lines())
    fallbacks = activity.fallback_count
    if not activity.used:
        if activity.skipped and not fallbacks and settings.method == "auto":
            return Summary("inactive", "auto switched itself off: it would not have been faster", details=details)
        return Summary("inactive", f"not active in any of {total_blocks} {blocks}", details=details)
    sizes = ", ".join(f"{before} -> {after}" for before, after in activity.token_sizes()) or "no"
    what = "tokens" if merges_queries(settings) else "keys and values"
    text = f"active in {len(activity.used)} of {total_blocks} {blocks}; {sizes} {what}"
    if activity.idle_calls:
        text += f"; in {activity.model_calls - activity.idle_calls} of {activity.model_calls} model calls"
    return Summary("partly" if fallbacks else "active", f"{text}; {fallbacks} fallbacks", details=details)


def merges_queries(settings: TokenMergingSettings) -> bool:
    """Return whether queries become fewer too; ``auto`` merges only for layers where nothing else could be fewer."""
    if settings.method == "auto":
        return settings.merge_crossattn or settings.merge_mlp
    return settings.method != "kv_downsample"
