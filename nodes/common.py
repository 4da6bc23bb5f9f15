"""What the nodes share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from comfy_api.latest import io

from ..core.activity import Summary
from ..core.technique import Target, attach, find
from ..optimizers.hosts.comfyui.compat import require_host
from ..optimizers.hosts.comfyui.reporting import announce
from ..optimizers.hosts.comfyui.stack import Technique

_reports_to: ContextVar[str | None] = ContextVar("paceline_reports_to", default=None)


class PacelineNode(io.ComfyNode):
    """A node of this pack: checks ComfyUI before it runs, and reports to its place in the graph."""

    @classmethod
    def schema(cls, **description: Any) -> io.Schema:
        """Return the schema of a node with what all nodes of this pack have in common.

        Nodes are not idempotent: a cached result of another node would report to that one.
        """
        common = {"category": "Paceline", "hidden": [io.Hidden.unique_id], "not_idempotent": True}
        return io.Schema(**common | description)

    @classmethod
    def execute(cls, *args: Any, **inputs: Any) -> io.NodeOutput:
        """Run the node.

        Raises:
            HostTooOld: if this ComfyUI lacks an interface that the pack needs.
        """
        require_host()
        return cls.run(*args, **inputs)

    @classmethod
    def run(cls, *args: Any, **inputs: Any) -> io.NodeOutput:
        """Do the work, given the inputs of the schema."""
        raise NotImplementedError

    @classmethod
    def node_id(cls) -> str | None:
        """Return the id to report to; None when the node is called from Python, outside of a workflow."""
        return _reports_to.get() or getattr(cls.hidden, "unique_id", None)

    @classmethod
    def attach(cls, target: Target[Technique[Any]], technique: Technique[Any]) -> Any:
        """Return the target's object with ``technique`` attached, and show at the node what it will reach."""
        replaced = find(target.techniques, technique.kind)
        result = attach(target, technique)
        headline, *details = technique.describe().split("; ")
        if replaced is not None:
            details.append(f"replaces an earlier {replaced.title} ({replaced.describe()})")
        announce(technique.node_id, Summary("waiting", headline, details=tuple(details)))
        return result


@contextmanager
def reporting_to(node: str | None) -> Iterator[None]:
    """Let nodes that another node runs report to that one: only it is in the graph."""
    token = _reports_to.set(node)
    try:
        yield
    finally:
        _reports_to.reset(token)
