"""Tell the user what happened: one log line for each sampling run, and a message to the node."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ....core.activity import Summary

if TYPE_CHECKING:
    from ...compilation import Progress

EVENT = "paceline.activity"
"""Websocket event with ``{"node", "state", "text", "details"}``; web/js/events.js makes a badge of it.

ComfyUI's own progress text is not used: it would repeat the badge in the node, and stay there after the run.
"""

COMPILE_EVENT = "paceline.compile"
"""Websocket event with ``{"node", "phase", "text", "seconds", "graph"}``, sent while something is compiled."""


def running_server() -> Any | None:
    """Return ComfyUI's running server, or None (tests and scripts sample without one)."""
    # Looked up, never imported: outside of ComfyUI's main.py an import of `server` would start to build one.
    return getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)


def log_run(lines: Iterable[str]) -> None:
    """Write one line with everything that was active in a sampling run."""
    logging.info("Paceline: %s", " | ".join(lines))


def announce(node_id: str | None, summary: Summary) -> None:
    """Show ``summary`` at the node and send it as an event; does nothing without a server or a node."""
    server = running_server()
    if server is None or node_id is None:
        return
    payload = {"node": node_id, "state": summary.state, "text": summary.text, "details": list(summary.details)}
    server.send_sync(EVENT, payload, server.client_id)


def show_progress(node_id: str | None, progress: Progress) -> None:
    """Show at the node how far a compilation is; does nothing without a server or a node."""
    server = running_server()
    if server is None or node_id is None:
        return
    payload = {
        "node": node_id,
        "phase": progress.phase,
        "text": progress.text,
        "seconds": progress.seconds,
        "graph": progress.graph,
    }
    server.send_sync(COMPILE_EVENT, payload, server.client_id)
