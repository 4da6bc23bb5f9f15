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

from ..core.errors import InvalidSetting, require_choice
from ..optimizers.hosts.comfyui.reporting import Payload
from ..workbench.comfyui.prompt import Prompt, link_of, links_into, reached, require_prompt, users_of
from .built_in_presets import BUILT_IN
from .trial_scene import Scene, scene_for

TRIAL = "/paceline/trial"

QUICK = {"runs": 3, "warmup_runs": 1}

MORE = {"runs": 9, "warmup_runs": 1}
"""Where three rounds are too noisy to tell."""

_COMPARE = "paceline_trial"

_ALLOWED = {
    "lossless": ("identical", "hardly visible"),
    "balanced": ("identical", "hardly visible"),
    "fast": ("identical", "hardly visible", "visible"),
}
"""What is good enough, for each choice."""

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

    def payload(self, prompt: Payload | None = None, node: str = "", measurable: bool = True) -> Payload:
        """Return what the page is told: ``TrialState`` in web/js/payloads.d.ts."""
        saves = 0.0 if self.best is None else _saved(self.best)
        told = {"judged": self.judged, "best": self.best, "once": self.once, "saves": saves}
        return {"measurable": measurable, "prompt": prompt, "node": node, **told}


def trial_payload(sent: Any) -> Payload:
    """Return what to measure next, or what the findings say when nothing is left; `InvalidSetting` if unreadable.

    ``sent`` has ``prompt``; ``name`` and ``receivers`` of a wire; ``chain``, execution ids of the nodes on it that are
    tried, in order; ``choice``; and ``findings``, the results of the measurements so far, in order.
    """
    trial = Trial()
    try:
        prompt, chain, choice = require_prompt(sent["prompt"]), [str(id) for id in sent["chain"]], sent["choice"]
        findings = list(sent["findings"])
        receivers = [str(receiver["node"]) for receiver in sent["receivers"]]
        require_choice("choice", choice, BUILT_IN)
        known = chain and all(id in prompt for id in chain)
        scene = scene_for(prompt, str(sent["name"]), [chain[-1], 0], receivers) if known else None
        if scene is None:
            return trial.payload(measurable=False)
        for node, before, after, times in _measurements(chain, choice, findings, trial):
            return trial.payload(_prompt_for(prompt, scene, chain, before, after, times), node)
        return trial.payload()
    except InvalidSetting:
        raise
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError) as error:
        needed = "Send prompt, name, receivers, chain, choice and findings."
        raise InvalidSetting("This trial cannot be read.", needed) from error


def _measurements(
    chain: Sequence[str], choice: str, findings: list[Finding], trial: Trial
) -> Iterator[tuple[str, list[str], list[str], Mapping[str, int]]]:
    """Go through the findings, and yield what is measured where they end: the node, and both sides."""
    for node in chain:
        once = 0.0
        for times in (QUICK, MORE):
            if not findings:
                yield node, list(trial.kept), [*trial.kept, node], times
            found = findings.pop(0)
            once += float(found["compiling"])
            good = found["quality"] in _ALLOWED[choice]
            if found["found"] != "unknown" or not good:
                break
        worth = good and found["found"] == "faster"
        judged = {"node": node, "kept": worth, "verdict": str(found["verdict"]), "once": once, "saves": _saved(found)}
        trial.judged.append(judged)
        if worth:
            trial.kept.append(node)
            trial.best = found
            trial.once += once
    if len(trial.kept) > 1:
        if not findings:
            yield "", [], list(trial.kept), QUICK
        trial.best = findings.pop(0)


def _saved(found: Finding) -> float:
    seconds, steps = found["seconds"], found["about"]["steps"]
    saved = median(seconds["baseline"]) - median(seconds["optimized"])
    saved *= float(steps) if found["speedup_of"] == "step" else 1.0
    return saved if math.isfinite(saved) else 0.0


def _prompt_for(
    prompt: Prompt,
    scene: Scene,
    chain: Sequence[str],
    before: Sequence[str],
    after: Sequence[str],
    times: Mapping[str, int],
) -> Payload:
    """Return a prompt that compares the chain's source behind some of its nodes with the source behind others."""
    known: dict[str, Any] = {**prompt}
    users = users_of(prompt, chain[-1:])

    def with_chain(kept: Sequence[str], side: str, inputs: Mapping[str, Any]) -> Payload:
        """Return inputs as they are where the chain has only some of its nodes, on copies of what uses it."""
        value = prompt[chain[0]]["inputs"][scene.name]
        for id in kept:
            copy = f"{_COMPARE}_{side}_{id}"
            known[copy] = {**prompt[id], "inputs": {**prompt[id]["inputs"], scene.name: value}}
            value = [copy, 0]

        def moved(given: Any) -> Any:
            link = link_of(given)
            if link == (chain[-1], 0):
                return value
            return [f"{_COMPARE}_{side}_{link[0]}", link[1]] if link and link[0] in users else given

        for id in users:
            there = {name: moved(given) for name, given in prompt[id]["inputs"].items()}
            known[f"{_COMPARE}_{side}_{id}"] = {**prompt[id], "inputs": there}
        return {name: moved(given) for name, given in inputs.items()}

    sides = {**with_chain(before, "a", scene.baseline), **with_chain(after, "b", scene.optimized)}
    fixed = {"fp32_reference": False, "filename_prefix": "paceline/trial", "save_files": False, "fewer_steps": False}
    inputs = {**scene.settings, **sides, **times, **fixed}
    known[_COMPARE] = {"class_type": "PacelineCompareModels", "inputs": inputs}
    needed = reached([_COMPARE], lambda id: (origin for origin, _ in links_into(known, id).values()))
    return {id: known[id] for id in (_COMPARE, *needed)}
