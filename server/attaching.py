"""Attach techniques for a node, and report there."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.activity import Summary
from ..core.phrases import phrase
from ..core.technique import Target, attach, find
from ..optimizers.hosts.comfyui.reporting import announce
from ..optimizers.hosts.comfyui.stack import AnyTechnique


def attach_for(node: str | None, target: Target[AnyTechnique], technique: AnyTechnique) -> object:
    """Return the target's object with ``technique`` attached, which reports to a node.

    ``node`` is None where there is no page. The node of a technique that is replaced is told.
    """
    technique.node_id = node
    replaced = find(target.techniques, technique.kind)
    result = attach(target, technique)
    headline, *details = technique.policy.clauses()
    if replaced is not None:
        settings = replaced.policy.describe()
        details.append(f"replaces an earlier {replaced.title} ({settings})")
        if replaced.node_id != node is not None:
            by = phrase("replaced by {title} #{node}", title=technique.title, node=node)
            announce(replaced.node_id, Summary("inactive", by, details=(settings,)), replaced.title)
    announce(node, Summary("waiting", headline, details=tuple(details)), technique.title)
    return result


def report_together(techniques: Sequence[AnyTechnique]) -> None:
    """Let the techniques of one node share its message after each run."""
    if len(techniques) < 2:
        return

    def report() -> None:
        announce(techniques[0].node_id, _summary_of_all(techniques), ", ".join(item.title for item in techniques))

    for technique in techniques:
        technique.report = report


def _summary_of_all(techniques: Sequence[AnyTechnique]) -> Summary:
    summaries = {technique.title: technique.last_summary() for technique in techniques}
    active = [title for title, summary in summaries.items() if summary.state in ("active", "partly")]
    states = {summary.state for summary in summaries.values()}
    headline = phrase("{count} of {total} active", count=len(active), total=len(techniques))
    if active:
        headline = phrase("{active}: {titles}", active=headline, titles=", ".join(active))
    if "working" in states:
        return Summary("working", headline if active else phrase("sampling"))
    details: list[str] = []
    for title, summary in summaries.items():
        details += [f"{title}: {summary.headline}", *(f"  {line}" for line in summary.lines)]
    # An object that has not run yet (the VAE, before the first decoding) does not replace the report of one that has.
    states = states - {"waiting"} or states
    counts = {"active": len(active), "techniques": len(techniques)}
    return Summary(states.pop() if len(states) == 1 else "partly", headline, counts, tuple(details))
