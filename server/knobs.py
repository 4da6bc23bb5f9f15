"""Which widgets of other people's nodes a search may change, and which nodes it may put before a sampler."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..optimizers.hosts.comfyui.reporting import Payload
from ..optimizers.step_reuse.samplers import FEWEST_STEPS
from ..workbench.comfyui.prompt import class_of, link_of
from ..workbench.comfyui.workflow import Workflow
from ..workbench.recipe import Step
from ..workbench.search.space import EASY, REUSE, Candidate, Space
from .foreign import KNOWN
from .trial_scene import NotMeasurable

_ALL = {"steps": "steps", "sampler": "sampler_name", "scheduler": "scheduler"}

SITES: Mapping[str, Mapping[str, str]] = {
    "KSampler": _ALL,
    "KSamplerAdvanced": _ALL,
    "KSamplerSelect": {"sampler": "sampler_name"},
    "BasicScheduler": {"steps": "steps", "scheduler": "scheduler"},
    **{
        f"{name}Scheduler": {"steps": "steps"}
        for name in ("Karras", "Exponential", "Polyexponential", "VP", "BetaSampling", "LTXV", "Flux2")
    },
}
"""By a node's type: its inputs for ``steps``, ``sampler`` and ``scheduler``. Others are never touched."""

REUSE_STEPS, _EASY, _UNGUIDED = "PacelineReuseSteps", "EasyCache", "CFGOverride"

Site = tuple[str, str]
"""A node's execution id, and one of its inputs."""


@dataclass(frozen=True)
class Knobs:
    """What may be changed around a sampler.

    Attributes:
        sites: where ``steps``, ``sampler`` and ``scheduler`` stand.
        nodes: titles of the nodes that were found to make a step faster.
    """

    workflow: Workflow
    space: Space
    sites: Mapping[str, Site]
    nodes: tuple[str, ...]

    def edits(self, one: Candidate) -> list[Payload]:
        """Return ``Edit`` in web/js/payloads.d.ts for each widget that a candidate changes."""
        found = []
        for name, (node, put) in self.sites.items():
            before, after = self.workflow.inputs(node)[put], getattr(one, name)
            if before != after:
                title = self.workflow.title(node)
                found.append({"node": node, "input": put, "before": before, "after": after, "title": title})
        return found

    def steps(self, one: Candidate) -> list[Step]:
        """Return the nodes that a candidate puts before the sampler, in order."""
        name, setting = one.cache
        found = []
        if name == REUSE:
            found.append(Step(REUSE_STEPS, {"budget": setting}))
        if name == EASY:
            values = {"reuse_threshold": setting, "start_percent": 0.15, "end_percent": 0.95, "verbose": False}
            found.append(Step(_EASY, values))
        if one.unguided < 1:
            found.append(Step(_UNGUIDED, {"cfg": 1.0, "start_percent": one.unguided, "end_percent": 1.0}))
        return found

    def label(self, one: Candidate) -> str:
        """Return a candidate in a few words, e.g. ``20 steps + Reuse Steps 0.1``."""
        return " + ".join([*self.space.changes(one), *(self.nodes if one.with_nodes else ())])


def find_knobs(
    workflow: Workflow,
    sampler: str,
    upstream: Iterable[str],
    fixed: Collection[Site],
    nodes: tuple[str, ...],
    faster: float,
) -> Knobs:
    """Return what may be changed around a ``sampler`` of the plain workflow.

    ``upstream`` are the nodes between it and the loader, ``fixed`` widgets that only look as if they could be set.

    `NotMeasurable` where the number of steps cannot be changed, or is small already.
    """
    around = (sampler, *(workflow.before(sampler, name) for name in ("sampler", "sigmas")))
    sites: dict[str, Site] = {}
    for id in filter(None, around):
        for name, put in SITES.get(workflow.type(id), {}).items():
            value = workflow.inputs(id).get(put)
            if value is not None and link_of(value) is None and (id, put) not in fixed and _whole(workflow.inputs(id)):
                sites[name] = (id, put)
    at = {name: workflow.inputs(node)[put] for name, (node, put) in sites.items()}
    steps = at.get("steps")
    title = workflow.title(sampler)
    if not isinstance(steps, int) or isinstance(steps, bool):
        raise NotMeasurable(f"{title} has no number of steps of its own that could be changed.")
    if steps <= FEWEST_STEPS:
        raise NotMeasurable(f"{title} takes only {steps} steps, and each of so few changes the picture too much.")
    types = {workflow.type(id) for id in upstream}
    may = {*sites}
    if class_of(_UNGUIDED) is not None and _guided(workflow, sampler):
        may.add("unguided")
    if not any(known.to == REUSE_STEPS for type, known in KNOWN.items() if type in types) and REUSE_STEPS not in types:
        may |= {REUSE} | ({EASY} if class_of(_EASY) is not None else set())
    plain = Candidate(steps, str(at.get("sampler", "")), str(at.get("scheduler", "")))
    return Knobs(workflow, Space(plain, 0.0, frozenset(may), faster if nodes else 1.0), sites, nodes)


def _whole(inputs: Mapping[str, Any]) -> bool:
    """Return whether a sampler runs its whole schedule: in a part of it, other steps are another part."""
    steps, start, end = (inputs.get(name, 0) for name in ("steps", "start_at_step", "end_at_step"))
    if "end_at_step" not in inputs:
        return True
    return start == 0 and isinstance(end, int) and isinstance(steps, int) and end >= steps


def _guided(workflow: Workflow, sampler: str) -> bool:
    guider = workflow.before(sampler, "guider") or sampler
    scale = workflow.inputs(guider).get("cfg")
    return isinstance(scale, (int, float)) and scale != 1
