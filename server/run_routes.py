"""Answers about a run that a page has not seen from the beginning: after a reload, or in a second tab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..optimizers.hosts.comfyui.reporting import Payload, said_in
from ..workbench.comfyui.prompt import failure_of

RUN = "/paceline/run"
_OUTCOMES = {"execution_success": "success", "execution_error": "failed", "execution_interrupted": "cancelled"}
"""By ComfyUI's message that ends a run."""
_OURS = "paceline_"


def run_payload(server: Any, workflow: str = "", prompt_id: str = "") -> Payload:
    """Return the run of a prompt, or else the latest one of a workflow (by the page's id); empty if there is none."""
    found: PromptRun | None = None
    said: dict[str, Payload] = {}
    for run in _runs(server.prompt_queue):
        if found is None and (run.prompt_id == prompt_id if prompt_id else run.workflow_id == workflow != ""):
            found = run
            said = {told["node"]: told for told in said_in(run.prompt_id)}
        elif found is not None:
            # A node whose result ComfyUI had kept says nothing: what it said when it was made still holds.
            made = {told["node"]: told for told in said_in(run.prompt_id)}
            said = {node: told for node, told in made.items() if found.kept_from(run, node)} | said
    return {} if found is None else _described(found, list(said.values()))


def run_of(server: Any, prompt_id: str) -> PromptRun | None:
    """Return the run of a prompt; None where ComfyUI does not know it any more."""
    return next((run for run in _runs(server.prompt_queue) if run.prompt_id == prompt_id), None)


@dataclass(frozen=True)
class PromptRun:
    """A run that ComfyUI knows: nodes by execution id, the page's workflow, and ``history``, None while it goes on."""

    prompt_id: str
    prompt: Mapping[str, Any]
    workflow: Mapping[str, Any]
    history: Mapping[str, Any] | None

    @property
    def workflow_id(self) -> str:
        """The id that the page has given to the workflow; empty for a prompt of a script."""
        return str(self.workflow.get("id") or "")

    @property
    def messages(self) -> dict[str, Any]:
        return dict(((self.history or {}).get("status") or {}).get("messages") or ())

    def kept_from(self, earlier: PromptRun, node: str) -> bool:
        """Return whether a node's result can be from an earlier run."""
        kept = self.prompt if self.history is None else self.messages.get("execution_cached", {}).get("nodes", ())
        return node in kept and self.prompt.get(node) == earlier.prompt.get(node)


def _runs(queue: Any) -> Iterator[PromptRun]:
    with queue.mutex:
        items = [(item, None) for item in queue.currently_running.values()]
        items += [(history["prompt"], history) for history in reversed(list(queue.history.values()))]
    for (_, prompt_id, prompt, extra_data, *_), history in items:
        around = _mapping(_mapping(extra_data).get("extra_pnginfo"))
        yield PromptRun(prompt_id, prompt, _mapping(around.get("workflow")), history)


def _mapping(value: object) -> Mapping[str, Any]:
    """Return what a client has sent beside a prompt, which ComfyUI does not look at; empty if it is anything else."""
    return value if isinstance(value, Mapping) else {}


def _described(run: PromptRun, activities: list[Payload]) -> Payload:
    error = run.messages.get("execution_error") or {}
    outputs = ((run.history or {}).get("outputs") or {}).items()
    ours = {node: {key: value for key, value in shown.items() if key.startswith(_OURS)} for node, shown in outputs}
    return {
        "prompt_id": run.prompt_id,
        "workflow": run.workflow,
        "outcome": next((name for event, name in _OUTCOMES.items() if event in run.messages), "running"),
        "activities": activities,
        "outputs": [{"node": node, "output": shown} for node, shown in ours.items() if shown],
        "failed_node": error.get("node_id"),
        "failed_type": error.get("node_type"),
        "message": failure_of(error),
    }
