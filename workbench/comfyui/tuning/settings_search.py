"""The search for other settings of a workflow, as the command line runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...measurement.verdict_text import fraction
from ..prompt import Prompt
from .server import Server

Asked = Mapping[str, Any]


def asked(prompt: Prompt, wire: Asked, chain: Sequence[str], choice: str) -> dict[str, Any]:
    """Return what the server needs to search on a wire; ``chain`` are the nodes that were inserted there."""
    given = {"prompt": prompt, "receivers": wire["receivers"], "chain": list(chain), "choice": choice}
    return {**given, "kept": [], "faster": 1.0, "fixed": [], "drawn": []}


def draw(server: Server, sent: Asked) -> Asked:
    """Draw until all is known, or it was as much work as is allowed; what is drawn joins the list that was ``sent``."""
    while True:
        state: Asked = server.ask("/paceline/search", sent)
        if state["prompt"] is None:
            return state
        print(f"drawing {state['label']} ({state['pictures']:.0f} of {state['most']:g} pictures)", flush=True)
        shown = server.run(state["prompt"])
        sent["drawn"].extend(one for entry in shown.values() for one in entry.get("paceline_tried", ()))


def report(state: Asked, where: str) -> dict[str, Any] | None:
    """Say what was found, and return the fastest trade; None without one."""
    if state["note"]:
        print(state["note"])
    for trade in state["trades"]:
        far = f"{fraction(trade['worst'])} of a seed change in the worst of {trade['pictures']} pictures"
        print(f"{trade['gain']:.2f}x less work, for {where}: {trade['label']}; difference {far}")
    if not state["trades"]:
        why = state["why_not"] or "No other settings are faster with pictures as near as was chosen."
        print(f"kept the settings, for {where}: {why}")
        return None
    best: dict[str, Any] = state["trades"][-1]
    for edit in best["edits"]:
        print(f"changed {edit['title']}: {edit['input']} {edit['before']} -> {edit['after']}")
    if not best["ours"]:
        print("No node of Paceline is in the fastest settings.")
    return best
