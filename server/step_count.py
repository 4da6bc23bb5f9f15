"""How many steps a workflow samples with, as far as that stands in it."""

from __future__ import annotations

from collections.abc import Iterator

from ..workbench.comfyui.workflow import NUMBERS, Workflow, way_back
from .wires import Wire


def steps_behind(workflow: Workflow, wire: Wire) -> int | None:
    """Return the most steps of a sampler that is given a model by a wire; None where that is not known yet."""
    receivers = [node for node, _ in wire.receivers]
    samplers = [id for id in workflow if id in receivers or workflow.before(id, "guider") in receivers]
    counts = [count for id in samplers for count in _counts(workflow, id)]
    return max(counts, default=None)


def _counts(workflow: Workflow, sampler: str) -> Iterator[int]:
    levels = workflow.known(workflow.inputs(sampler).get("sigmas"), (*NUMBERS, "SIGMAS"))
    if hasattr(levels, "shape"):
        yield max(0, levels.shape[-1] - 1)
        return
    # Noise levels that a model has a part in, or the size of a picture.
    schedule = way_back(workflow.before(sampler, "sigmas"), lambda id: workflow.before(id, "sigmas"))
    for id in (sampler, *schedule):
        steps = workflow.known(workflow.inputs(id).get("steps"))
        if isinstance(steps, (int, float)):
            yield int(steps)
            return
