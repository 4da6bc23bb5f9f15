"""Tell the user what happened: one log line for each sampling run, and a message to the page that started it.

ComfyUI's own progress text is not used: it would repeat the badge in the node, and stay there after the run.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....core.activity import Summary
    from ...compilation import Progress

ACTIVITY_EVENT = "paceline.activity"
"""Websocket event, sent by :func:`announce` when a node knows more about what it does."""

COMPILE_EVENT = "paceline.compile"
"""Websocket event, sent by :func:`show_progress` about once a second while something is compiled."""

Payload = dict[str, Any]
"""What the page receives. ``web/js/payloads.d.ts`` has the same keys: tests/browser/test_payloads.py compares them."""


def running_server() -> Any | None:
    """Return ComfyUI's running server, or None (tests and scripts sample without one)."""
    # Looked up, never imported: outside of ComfyUI's main.py an import of `server` would start to build one.
    return getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)


def log_run(lines: Iterable[str]) -> None:
    """Write one line with everything that was active in a sampling run."""
    logging.info("Paceline: %s", " | ".join(lines))


def announce(node_id: str | None, summary: Summary, title: str = "Paceline") -> None:
    """Show ``summary`` at a node. ``title``: whose summary it is. Does nothing without a page to show it."""
    payload = {
        "state": summary.state,
        "title": title,
        "headline": summary.headline,
        "counts": dict(summary.counts),
        "details": list(summary.details),
    }
    _send(ACTIVITY_EVENT, node_id, payload)


def show_progress(node_id: str | None, progress: Progress) -> None:
    """Show at a node how far a compilation is. Does nothing without a page to show it."""
    payload = {
        "phase": progress.phase,
        "headline": progress.text,
        "seconds": progress.seconds,
        "graph": progress.graph,
        "expected_seconds": progress.expected_seconds,
    }
    _send(COMPILE_EVENT, node_id, payload)


def _send(event: str, node_id: str | None, payload: Payload) -> None:
    server = running_server()
    # A prompt that was sent without a client id has no page. ComfyUI would send the message to every page.
    if server is None or node_id is None or server.client_id is None:
        return
    # ComfyUI runs one prompt at a time, and names it where it starts it.
    prompt_id = getattr(server, "last_prompt_id", None)
    server.send_sync(event, {"node": node_id, "prompt_id": prompt_id, **payload}, server.client_id)
