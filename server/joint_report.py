"""One message for several techniques that one node has attached, maybe to several objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.activity import Summary
from ..core.phrases import joined, phrase, translatable
from ..optimizers.hosts.comfyui.reporting import announce

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.stack import AnyTechnique


def report_together(techniques: Sequence[AnyTechnique]) -> None:
    """Let ``techniques`` of one node share its message after each run."""
    if len(techniques) < 2:
        return

    def report() -> None:
        announce(techniques[0].node_id, _summary_of_all(techniques), ", ".join(item.title for item in techniques))

    for technique in techniques:
        technique.report = report


def _summary_of_all(techniques: Sequence[AnyTechnique]) -> Summary:
    """Return what several techniques did in their last runs."""
    summaries = [(technique.title, technique.last_summary()) for technique in techniques]
    active = [title for title, summary in summaries if summary.state in ("active", "partly")]
    states = {summary.state for _, summary in summaries}
    headline = phrase("{count} of {total} active", count=len(active), total=len(techniques))
    if active:
        headline = phrase("{active}: {titles}", active=headline, titles=joined(", ", active))
    if "working" in states:
        return Summary("working", headline if active else translatable("sampling"))
    details: list[str] = []
    for title, summary in summaries:
        details.append(phrase("{title}: {headline}", title=title, headline=summary.headline))
        details += (phrase("  {line}", line=line) for line in summary.lines)
    # What has not run yet (the VAE, before the first decoding) takes nothing from what has.
    states = states - {"waiting"} or states
    counts = {"active": len(active), "techniques": len(techniques)}
    return Summary(states.pop() if len(states) == 1 else "partly", headline, counts, tuple(details))
