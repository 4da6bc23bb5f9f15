"""The one job that is kept, and the answers to what the page and ``tune`` ask."""

from __future__ import annotations

from threading import Lock
from typing import Any

from ...optimizers.core.errors import InvalidSetting
from ...optimizers.core.phrases import Phrase, phrase
from ...optimizers.in_comfyui.run.reporting import Payload
from ..apply_recipe import Nodes
from .job import Job, Request, job_state
from .kept_runs import KeptRuns, history
from .levers import levers, of_loaded_models
from .look import picture_time
from .node_types import node_type
from .plan import make_plans
from .prompts import observed
from .same_work import workflow_key
from .workflow import Workflow

FASTER = "/paceline/faster"


class JobStore:
    """Holds the one job whose run is watched: what is kept of it can be large."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._lock = Lock()

    def find(self, id: str) -> Job | None:
        """Return the job of this id; None where another one was begun since."""
        job = self._job
        return job if job is not None and job.id == id else None

    def watching(self, prompt: Any) -> Job | None:
        """Return the job that watches the run of a prompt; None where none does."""
        job = self._job
        return job if job is not None and job.id in str(prompt) else None

    def known(self, id: str) -> Job:
        """Return the job of this id; `InvalidSetting` where another one was begun since."""
        job = self.find(id)
        if job is None:
            problem = "This run is not known any more: another prompt was queued since."
            raise InvalidSetting(problem, "Run it once more.")
        return job

    def take(self, job: Job | None) -> None:
        """Take a job in the place of the one before, whose memory is freed."""
        with self._lock:
            before, self._job = self._job, job
        if before is not None:
            before.observer.forget()

    def queued(self, sent: Any, server: Any) -> Any:
        """Drop a run that is over, and that nobody asks about, when another prompt is queued; return the prompt.

        Another tab may queue a prompt between this one's request and its run; then the job is dropped.
        """
        job = self._job
        over = job is not None and not (job.observer.empty or job.probing or job.concluded)
        if job is not None and over and not _to_come(job.id, sent, server.prompt_queue):
            self.take(None)
        return sent


def _to_come(id: str, sent: Any, queue: Any) -> bool:
    """Return whether the prompt of a job is ``sent`` just now, waits or runs."""
    with queue.mutex:
        prompts = [sent, *(prompt for _, _, prompt, *_ in [*queue.currently_running.values(), *queue.queue])]
    return any(id in str(prompt) for prompt in prompts)


JOBS = JobStore()


def faster_payload(sent: Any, nodes: Nodes) -> Payload:
    """Return ``FasterState`` in web/js/payloads.d.ts; `InvalidSetting` for a request that cannot be answered."""
    request = Request.read(sent)
    if request.do in ("look", "run"):
        workflow = Workflow.read(request.prompt)
        plans = make_plans(workflow, request.choice, nodes)
        job = Job(workflow, request.choice, plans, nodes, request.pictures)
        if request.do == "look":
            return _look(job, request)
        job.levers = levers(workflow, request.bypassed, request.names)
        JOBS.take(job)
        return job_state("run", job.id, observed(workflow, [plan.link for plan in plans], job.id))
    if request.do == "drop":
        if JOBS.find(request.job) is not None:
            JOBS.take(None)
        return job_state("look")
    known = JOBS.known(request.job)
    if request.do == "next":
        return known.next(request)
    return known.keep() if request.do == "keep" else known.prove()


def _look(job: Job, request: Request) -> Payload:
    """Return what is known before any run: from the runs that are kept, and of what could be tried."""
    titles = dict.fromkeys(title for plan in job.plans for title in plan.titles)
    notes = dict.fromkeys(note for plan in job.plans for note in plan.notes)
    key = workflow_key(job.workflow)
    own = [run for run in KeptRuns().read() if run.workflow == key]
    past = history(own, job.choice)
    time = picture_time(job.workflow, own, job.plans, past)
    offers = [phrase("{day}: {what}", day=day, what=one.sentence) for day, one in past if not one.link]
    why, unknown = "", list[Phrase]()
    if not job.workflow.model_links and not titles:
        off = [one.title for one in request.bypassed if "LATENT" in node_type(one.type).outputs]
        why = phrase("This workflow has no sampler with a model, so there is nothing to make faster.")
        if off:
            why = phrase("{node} is muted or bypassed, so nothing is sampled.", node=off[0])
    elif not titles:
        why = phrase("Nothing is left to try: each node that could help is there already.")
        if notes:
            why = phrase("Nothing is left to try here.")
    elif time is None:
        unknown = [
            phrase("Nothing was measured here yet: a run shows how much faster it can be."),
            phrase("To be tried: {names}", names=", ".join(titles)),
        ]
    lines = [*offers, *unknown, *notes, *of_loaded_models()]
    ways = [one.payload for one in levers(job.workflow, request.bypassed, request.names)]
    return job_state("look", why_not=why, lines=lines) | {"time": time, "levers": ways}
