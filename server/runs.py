"""Runs of prompts: which workflow each is of, what became of it, and what ordinary ones took, kept and compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import Field

from ..core.phrases import Phrase, phrase
from ..faster.jobs import JOBS
from ..faster.kept import Ended, KeptRuns, Slower, kept_run, slower
from ..faster.request import Sent
from ..faster.runs import as_it_is
from ..faster.same_work import sampled_by, techniques_before
from ..faster.sentences import STAGES, told
from ..faster.workflow import Workflow
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


OUTCOMES = "/paceline/outcomes"
SAMPLINGS = "/paceline/samplings"

MOST_TIMES = 10
"""Of earlier runs that a sampler's step is compared with."""

_NOT_ORDINARY = re.compile(r"_PacelinePro|Paceline(Compare|Benchmark|Profile)")
"""Nodes of prompts that measure. One that is only watched is an ordinary run."""


class Question(Sent):
    """What the page asks of samplers: of those in a prompt, or in the run of one."""

    prompt_id: str = Field(default="", max_length=100)
    prompt: dict[str, Any] = Field(default_factory=dict)


class Outcomes:
    """Keeps each run once, and tells what became slower."""

    def __init__(self) -> None:
        self.kept = KeptRuns()

    def ended(self, sent: Any, server: Any) -> Payload:
        """Keep what a run took; return whether it is slower than it was, ``{"slower": Told or None}``.

        `InvalidSetting` if it cannot be read. A prompt that is not known any more, or measures, is not kept.
        """
        ended = Ended.read(sent)
        run = run_of(server, ended.prompt_id)
        if run is None or any(_NOT_ORDINARY.match(str(node.get("class_type"))) for node in run.prompt.values()):
            return {"slower": None}
        watched = JOBS.watching(run.prompt)
        if watched is not None and not ended.parts:  # from ``tune``, which is told of no node
            parts = watched.parts(sum(ended.seconds.values()))
            seconds = {kind: sum(nodes.values()) for kind, nodes in parts.items()}
            ended = ended.model_copy(update={"parts": parts, "seconds": seconds})
        outcome = kept_run(ended, as_it_is(Workflow.read(dict(run.prompt))))
        found = slower(self.kept.add(outcome, ended.prompt_id), outcome)
        return {"slower": None if found is None else told(sentence(found))}

    def samplings(self, sent: Any, server: Any) -> Payload:
        """Return ``Samplings`` in web/js/payloads.d.ts; empty for a run that is not known any more."""
        asked = Question.read(sent)
        run = None if asked.prompt else run_of(server, asked.prompt_id)
        workflow = Workflow.read(asked.prompt if run is None else dict(run.prompt))
        samplers = {id: sampled_by(workflow, id) for id in workflow if "sampler" in workflow.type(id).lower()}
        kept = self.kept.read()
        return {
            id: {
                "work": work,
                "techniques": techniques_before(workflow, id),
                "off": [each for one in kept for each in one.plain_steps.get(work, ())][-MOST_TIMES:],
            }
            for id, work in samplers.items()
        }

    def payload(self) -> Payload:
        """Return ``KeptRuns`` in web/js/payloads.d.ts."""
        return {"runs": [asdict(one) for one in self.kept.read()]}

    def clear(self) -> Payload:
        """Forget all runs, and return what is kept then: nothing; `NotWritten` if the file cannot be changed."""
        self.kept.clear()
        return self.payload()


def sentence(found: Slower) -> Phrase:
    """Return what became slower, since when, and what is known to have changed."""
    arrow = "\N{RIGHTWARDS ARROW}"  # as it is, a Windows console could not print this file
    changed = ", ".join(f"{name} {before} {arrow} {after}" for name, (before, after) in found.changed.items())
    same = phrase("Versions and device are the same as before.")
    return phrase(
        "Slower since {when}: {stage} {now:.3g} of {total:.3g} s, before {was:.3g} of {before:.3g} s. {changed}",
        when=found.since.replace("T", " ")[:16] + " UTC",
        stage=STAGES[found.stage],
        now=found.now,
        total=found.total_now,
        was=found.was,
        before=found.total_was,
        changed=phrase("Changed since: {what}.", what=changed) if changed else same,
    )
