"""The search for other settings of a workflow, as the command line runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...measurement.verdict_text import fraction
from ..prompt import Prompt
from .server import Server

Asked = Mapping[str, Any]


def asked(prompt: Prompt, wire: Asked, chain: Sequence[str], choice: str, most: float) -> dict[str, Any]:
    """Return what the server needs to search on a wire; ``chain`` are the nodes that were inserted there."""
    given = {"prompt": prompt, "receivers": wire["receivers"], "chain": list(chain), "choice": choice, "most": most}
    return {**given, "kept": [], "faster": 1.0, "fixed": [], "drawn": []}


def search(server: Server, sent: Asked, kept: Sequence[str], faster: float, where: str) -> dict[str, Any] | None:
    """Search beside the nodes that were kept, say what was found, and return the fastest trade; None without one."""
    drawn: list[Any] = []
    print(f"trying other settings, for {where}: at most the work of {sent['most']:g} pictures", flush=True)
    while True:
        state = server.ask("/paceline/search", {**sent, "kept": list(kept), "faster": faster, "drawn": drawn})
        if state["prompt"] is None:
            break
        print(f"drawing {state['label']} ({state['pictures']:.0f} of {state['most']:g} pictures)", flush=True)
        shown = server.run(state["prompt"])
        drawn += [one for entry in shown.values() for one in entry.get("paceline_tried", ())]
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
