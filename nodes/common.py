"""What the nodes share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..core.activity import Summary
from ..optimizers.hosts.comfyui.attach import attach
from ..optimizers.hosts.comfyui.reporting import announce
from ..optimizers.hosts.comfyui.stack import Technique, stack_of

CATEGORY = "Paceline"


_reports_to: ContextVar[str | None] = ContextVar("paceline_reports_to", default=None)


def node_id(node: Any) -> str | None:
    """Return the id of the node that is being run; None when it is called from Python, outside of a workflow."""
    return _reports_to.get() or getattr(node.hidden, "unique_id", None)


@contextmanager
def reporting_to(node: str | None) -> Iterator[None]:
    """Let nodes that another node runs report to that one: only it is in the graph."""
    token = _reports_to.set(node)
    try:
        yield
    finally:
        _reports_to.reset(token)


def attach_and_announce(model: Any, technique: Technique) -> Any:
    """Return a clone of ``model`` with ``technique``, and show at the node what it will reach."""
    replaced = stack_of(model).find(technique.kind)
    text = technique.describe()
    if replaced is not None:
        text += f"; replaces an earlier {replaced.title} ({replaced.describe()})"
    announce(technique.node_id, Summary("waiting", text))
    return attach(model, technique)
