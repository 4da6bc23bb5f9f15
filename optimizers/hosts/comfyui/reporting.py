"""Tell the page that started a workflow what happened at a node.

ComfyUI's own progress text is not used: it would repeat the badge in the node, and stay there after the run.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....core.activity import Summary

ACTIVITY_EVENT = "paceline.activity"
"""Websocket event, sent by :func:`announce` when a node knows more about what it does."""

Payload = dict[str, Any]
"""What the page receives. ``web/js/payloads.d.ts`` has the same keys: tests/browser/test_payloads.py compares them."""


def running_server() -> Any | None:
    """Return ComfyUI's running server, or None (tests and scripts sample without one)."""
    # Looked up, never imported: outside of ComfyUI's main.py an import of `server` would start to build one.
    return getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)


def announce(node_id: str | None, summary: Summary, title: str = "Paceline") -> None:
    """Show ``summary`` at a node. ``title``: whose summary it is. Does nothing without a page to show it."""
    payload = {
        "state": summary.state,
        "title": title,
        "headline": summary.headline,
        "counts": dict(summary.counts),
        "details": list(summary.details),
    }
    send(ACTIVITY_EVENT, node_id, payload)


def send(event: str, node_id: str | None, payload: Payload) -> None:
    """Send a websocket event of a node to the page that has started the workflow, if there is one."""
    server = running_server()
    # A prompt that was sent without a client id has no page. ComfyUI would send the message to every page.
    if server is None or node_id is None or server.client_id is None:
        return
    # ComfyUI runs one prompt at a time, and names it where it starts it.
    prompt_id = getattr(server, "last_prompt_id", None)
    server.send_sync(event, {"node": node_id, "prompt_id": prompt_id, **payload}, server.client_id)
