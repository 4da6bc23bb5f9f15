"""Which workflow a prompt is of, and what became of it: ComfyUI's messages about a run name its prompt only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..optimizers.hosts.comfyui.runtime.reporting import Payload

RUN = "/paceline/run"
_OUTCOMES = {"execution_success": "success", "execution_error": "failed", "execution_interrupted": "cancelled"}
"""By ComfyUI's message that ends a run."""


@dataclass(frozen=True)
class PromptRun:
    """A run that ComfyUI knows: nodes by execution id, the page's workflow (empty for a prompt of a script)."""

    prompt_id: str
    prompt: Mapping[str, Any]
    workflow: Mapping[str, Any]
    outcome: str


def run_of(server: Any, prompt_id: str) -> PromptRun | None:
    """Return the run of a prompt; None where ComfyUI does not know it any more."""
    return next((run for run in _runs(server.prompt_queue) if run.prompt_id == prompt_id), None)


def run_payload(server: Any, prompt_id: str) -> Payload:
    """Return ``RunPayload`` in web/js/payloads.d.ts; empty if there is no such run."""
    run = run_of(server, prompt_id)
    return {} if run is None else {"workflow": run.workflow, "outcome": run.outcome}


def _runs(queue: Any) -> Iterator[PromptRun]:
    with queue.mutex:
        items: list[tuple[Any, dict[str, Any]]] = [(item, {}) for item in queue.currently_running.values()]
        items += [(history["prompt"], history.get("status") or {}) for history in queue.history.values()]
    for (_, prompt_id, prompt, extra_data, *_), status in items:
        ended = dict(status.get("messages") or ())
        outcome = next((name for event, name in _OUTCOMES.items() if event in ended), "running")
        workflow = _mapping(_mapping(_mapping(extra_data).get("extra_pnginfo")).get("workflow"))
        yield PromptRun(prompt_id, prompt, workflow, outcome)


def _mapping(value: object) -> Mapping[str, Any]:
    """Return what a client has sent beside a prompt, which ComfyUI does not look at; empty if it is anything else."""
    return value if isinstance(value, Mapping) else {}
