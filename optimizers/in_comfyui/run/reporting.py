"""What this pack leaves with ComfyUI's server: reports of nodes for the page.

ComfyUI's own progress text would repeat the badge in the node, and stay there after the run.
"""

from __future__ import annotations

import sys
from typing import Any

from ...core.activity import Summary
from ...core.phrases import data

ACTIVITY_EVENT = "paceline.activity"
"""Websocket event, sent by :func:`announce` when a node has a new summary."""

Payload = dict[str, Any]
"""Data for the page. ``web/js/payloads.d.ts`` has the same keys."""


def running_server() -> Any | None:
    """Return ComfyUI's running server, or None (tests and scripts sample without one)."""
    # Looked up, never imported: outside of ComfyUI's main.py an import of `server` would start to build one.
    return getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)


def running_prompt() -> str | None:
    """Return the id of the prompt that is executed; None without a server. ComfyUI runs one at a time."""
    return getattr(running_server(), "last_prompt_id", None)


def announce(node_id: str | None, summary: Summary, title: str = "Paceline") -> None:
    """Show ``summary`` at a node. ``title``: whose summary it is. Does nothing without a server."""
    send(ACTIVITY_EVENT, node_id, summary_payload(summary, title))


def summary_payload(summary: Summary, title: str) -> Payload:
    """Return a summary as data: ``ActivityPayload`` in web/js/payloads.d.ts, without its node and prompt."""
    return {
        "state": summary.state,
        "title": title,
        "headline": summary.headline,
        "counts": dict(summary.counts),
        "details": list(summary.details),
        "phrase": data(summary.headline),
        "neutral": summary.neutral,
    }


def send(event: str, node_id: str | None, payload: Payload) -> None:
    """Send a websocket event of a node to the page that has started the workflow, if there is one."""
    server = running_server()
    if server is None or node_id is None:
        return
    # A prompt that was sent without a client id has no page. ComfyUI would send the message to every page.
    if server.client_id is None:
        return
    server.send_sync(event, {"node": node_id, "prompt_id": running_prompt(), **payload}, server.client_id)
