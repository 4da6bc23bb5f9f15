"""Runs of prompts: which workflow each is of, and what ordinary ones took, kept and compared."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from ..measure.speedup import one_more_within
from ..optimizers.in_comfyui.run.reporting import Payload
from .faster.job_store import JOBS
from .faster.kept_runs import Ended, KeptRuns, kept_run, slower
from .faster.prompts import as_it_is
from .faster.same_work import sampled_by, techniques_before
from .faster.sentences import told
from .faster.workflow import Workflow

RUN = "/paceline/run"
OUTCOMES = "/paceline/outcomes"
SAMPLINGS = "/paceline/samplings"

MOST_TIMES = 10
"""Of earlier runs that a sampler's step is compared with."""

OF_ONE_RUN = 2
"""As many are of one run, which cannot tell how much one run differs from the next."""

_NOT_ORDINARY = re.compile(r"_PacelineTrial|Paceline(Compare|Benchmark|Profile)")
"""Nodes of prompts that measure. One that is only watched is an ordinary run."""


def run_payload(server: Any, prompt_id: str) -> Payload:
    """Return ``RunPayload`` in web/js/payloads.d.ts; empty if ComfyUI does not know the run any more.

    The page's workflow is empty for a prompt of a script.
    """
    item = _item_of(server, prompt_id)
    if item is None:
        return {}
    workflow = _mapping(_mapping(_mapping(item[3]).get("extra_pnginfo")).get("workflow"))
    return {"workflow": workflow, "running": prompt_id not in server.prompt_queue.history}


def _item_of(server: Any, prompt_id: str) -> Any:
    """Return a prompt as ComfyUI's queue holds it, with its nodes in the third place; None where it is not known."""
    queue = server.prompt_queue
    with queue.mutex:
        items = [*queue.currently_running.values(), *(one["prompt"] for one in queue.history.values())]
    return next((item for item in items if item[1] == prompt_id), None)


def _mapping(value: object) -> Mapping[str, Any]:
    """Return the data that a client has sent beside a prompt, which ComfyUI does not read; empty if malformed."""
    return value if isinstance(value, Mapping) else {}


def _middle(times: Sequence[float]) -> Payload | None:
    """Return ``StepTime`` in web/js/payloads.d.ts; None where nothing was timed."""
    logarithms = [math.log(one) for one in times]  # a busy machine slows a step by a share of its time
    if not times:
        return None
    within = one_more_within(logarithms) if len(times) > OF_ONE_RUN else None
    return {"seconds": math.exp(fmean(logarithms)), "within": within}


class Outcomes:
    """Keeps each run once, and tells what became slower."""

    def __init__(self) -> None:
        self.kept = KeptRuns()

    def ended(self, sent: Any, server: Any) -> Payload:
        """Keep what a run took; return whether it is slower than it was, ``{"slower": Told or None}``.

        `InvalidSetting` if it cannot be read. A prompt that is not known any more, or measures, is not kept.
        """
        ended = Ended.read(sent)
        item = _item_of(server, ended.prompt_id)
        if item is None or any(_NOT_ORDINARY.match(str(node.get("class_type"))) for node in item[2].values()):
            return {"slower": None}
        watched = JOBS.watching(item[2])
        if watched is not None and not ended.parts:  # from ``tune``, which is told of no node
            parts = watched.by_node({"otherNodes": sum(ended.seconds.values())})
            seconds = {kind: sum(nodes.values()) for kind, nodes in parts.items()}
            ended = ended.model_copy(update={"parts": parts, "seconds": seconds})
        outcome = kept_run(ended, as_it_is(Workflow.read(item[2])))
        found = slower(self.kept.add(outcome, ended.prompt_id), outcome)
        if watched is not None:
            watched.remember()
        return {"slower": None if found is None else told(found)}

    def samplings(self, prompt_id: str, server: Any) -> Payload:
        """Return ``Samplings`` in web/js/payloads.d.ts; empty for a run that is not known any more."""
        item = _item_of(server, prompt_id)
        workflow = Workflow.read({} if item is None else item[2])
        kept, found = self.kept.read(), {}
        for id in workflow:
            if "sampler" in workflow.type(id).lower():
                work = sampled_by(workflow, id)
                off = [each for one in kept for each in one.plain_steps.get(work, ())][-MOST_TIMES:]
                found[id] = {"techniques": techniques_before(workflow, id), "off": _middle(off)}
        return found

    def payload(self) -> Payload:
        """Return ``KeptRuns`` in web/js/payloads.d.ts."""
        return {"runs": [asdict(one) for one in self.kept.read()]}

    def clear(self) -> Payload:
        """Forget all runs, and return what is kept then: nothing; `NotWritten` if the file cannot be changed."""
        self.kept.clear()
        return self.payload()
