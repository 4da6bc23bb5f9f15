"""The measured trial: which of the inserted nodes are faster here, with a picture as good as was chosen.

Each node is compared with the workflow without it; what is worth it stays for the next measurement. Nothing is
remembered between requests: the findings so far come with each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..core.choices import CHOICES
from ..core.errors import InvalidSetting, require_choice
from ..optimizers.hosts.comfyui.reporting import Payload
from ..workbench.comfyui.prompt import Prompt
from ..workbench.comfyui.runnable import why_refused
from ..workbench.comfyui.workflow import Workflow
from .built_in_presets import BUILT_IN
from .trial_scene import NotMeasurable, Scene, scene_for

TRIAL = "/paceline/trial"

ROUNDS = {"runs": 3, "most_runs": 9, "warmup_runs": 1}
"""Of each measurement: more than three where that is not clear."""

_COMPARE = "paceline_trial"

Finding = Mapping[str, Any]
"""``Comparison`` in web/js/measurements.d.ts."""


@dataclass
class Trial:
    """How far a trial has come.

    ``judged`` is in order, ``kept`` are execution ids; ``best`` is all that was kept against the plain workflow, None
    for nothing; ``once`` the seconds that compiling it has taken.
    """

    judged: list[Payload] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    best: Finding | None = None
    once: float = 0.0

    def payload(self, prompt: Payload | None = None, node: str = "", why_not: str = "") -> Payload:
        """Return what the page is told: ``TrialState`` in web/js/payloads.d.ts."""
        saves = 0.0 if self.best is None else _saved(self.best)
        told = {"judged": self.judged, "best": self.best, "once": self.once, "saves": saves}
        return {"why_not": why_not, "prompt": prompt, "node": node, **told}


def trial_payload(sent: Any) -> Payload:
    """Return what to measure next, or what the findings say when nothing is left; `InvalidSetting` if unreadable.

    ``sent`` has ``prompt``; ``name`` of a wire; ``chain``, execution ids of the nodes on it that are tried, in order;
    ``choice``; and ``findings``, the results of the measurements so far, in order.
    """
    trial = Trial()
    try:
        workflow, chain, choice = Workflow.read(sent["prompt"]), [str(id) for id in sent["chain"]], sent["choice"]
        findings = list(sent["findings"])
        require_choice("choice", choice, BUILT_IN)
        if not chain or not all(id in workflow for id in chain):
            raise NotMeasurable("What was inserted is not in the workflow that would run.")
        scene = scene_for(workflow, str(sent["name"]), chain)
        for node, before, after in _measurements(chain, choice, findings, trial):
            made = _prompt_for(workflow, scene, chain, before, after)
            if not findings and not trial.judged:
                refused = why_refused(made, _COMPARE)
                if refused:
                    raise NotMeasurable(refused)
            return trial.payload(made, node)
        return trial.payload()
    except InvalidSetting:
        raise
    except NotMeasurable as error:
        return trial.payload(why_not=str(error))
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError) as error:
        needed = "Send prompt, name, chain, choice and findings."
        raise InvalidSetting("This trial cannot be read.", needed) from error


def _measurements(
    chain: Sequence[str], choice: str, findings: list[Finding], trial: Trial
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Go through the findings, and yield what is measured where they end: the node, and both sides."""
    for node in chain:
        if not findings:
            yield node, list(trial.kept), [*trial.kept, node]
        found = findings.pop(0)
        once = float(found["compiling"])
        worth = found["quality"] in CHOICES[choice].qualities and found["found"] == "faster"
        judged = {"node": node, "kept": worth, "verdict": str(found["verdict"]), "once": once, "saves": _saved(found)}
        trial.judged.append(judged)
        if worth:
            trial.kept.append(node)
            trial.best = found
            trial.once += once
    if len(trial.kept) > 1:
        if not findings:
            yield "", [], list(trial.kept)
        trial.best = findings.pop(0)


def _saved(found: Finding) -> float:
    seconds, steps = found["seconds"], found["about"]["steps"]
    saved = median(seconds["baseline"]) - median(seconds["optimized"])
    saved *= float(steps) if found["speedup_of"] == "step" else 1.0
    return saved if math.isfinite(saved) else 0.0


def _prompt_for(
    workflow: Prompt, scene: Scene, chain: Sequence[str], before: Sequence[str], after: Sequence[str]
) -> dict[str, Any]:
    """Return a prompt that compares the chain's source behind some of its nodes with the source behind others."""
    known: dict[str, Any] = {**scene.nodes}

    def behind(kept: Sequence[str], side: str) -> Any:
        value = workflow[chain[0]]["inputs"][scene.name]
        for id in kept:
            copy = f"{_COMPARE}_{side}_{id}"
            known[copy] = {**workflow[id], "inputs": {**workflow[id]["inputs"], scene.name: value}}
            value = [copy, 0]
        return value

    sides = {"baseline": behind(before, "a"), "optimized": behind(after, "b")}
    known[_COMPARE] = {"class_type": "_PacelineTrial", "inputs": {**scene.inputs, **sides, **ROUNDS}}
    return {id: known[id] for id in Workflow(known).needed(_COMPARE)}
