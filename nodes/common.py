"""What the nodes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from comfy_api.latest import io

from ..core.activity import Summary
from ..core.technique import Target, attach, find
from ..optimizers.hosts.comfyui.reporting import announce

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.stack import Technique


class PacelineNode(io.ComfyNode):
    """A node of this pack. It reports to its place in the graph, or to ``reports_to`` where another node runs it."""

    reports_to: ClassVar[str | None] = None

    @classmethod
    def schema(cls, **description: Any) -> io.Schema:
        """Return the schema of a node with what all nodes of this pack have in common.

        Nodes are not idempotent: a cached result of another node would report to that one.
        """
        common = {"category": "Paceline", "hidden": [io.Hidden.unique_id], "not_idempotent": True}
        return io.Schema(**common | description)

    @classmethod
    def node_id(cls) -> str | None:
        """Return the id to report to; None when the node is called from Python, outside of a workflow."""
        return cls.reports_to or getattr(cls.hidden, "unique_id", None)

    @classmethod
    def announce(cls, summary: Summary) -> None:
        """Show ``summary`` at the node."""
        announce(cls.node_id(), summary, cls.define_schema().display_name or "Paceline")

    @classmethod
    def attach(cls, target: Target[Technique[Any]], technique: Technique[Any]) -> Any:
        """Return the target's object with ``technique`` attached, and show at the node what it will reach."""
        replaced = find(target.techniques, technique.kind)
        result = attach(target, technique)
        headline, *details = technique.describe().split("; ")
        if replaced is not None:
            details.append(f"replaces an earlier {replaced.title} ({replaced.describe()})")
        announce(technique.node_id, Summary("waiting", headline, details=tuple(details)), technique.title)
        return result
