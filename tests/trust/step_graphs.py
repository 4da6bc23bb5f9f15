"""Random graphs for Reuse Steps: with enough steps to leave some out, any sampler and schedule, and what must hold.

The other random graphs have two to four steps, where the node has nothing to do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from comfy_host.client import PromptFailed
from counts import attached
from graphs import Generator, Graph
from judge import Judge, Kept, Verdict, distance, is_sentence_of_ours
from schemas import inputs_of, legal
from tables import UNETS

NODE = "PacelineReuseSteps"
NOT_TRIED = ("dpm_adaptive",)
"""Chooses its steps, hundreds of them: a test of its own has it."""

ZERO_SNR = ("ModelSamplingDiscrete", {"model": "chain", "sampling": "v_prediction", "zsnr": True})
"""From a first noise level of thousands."""
SHIFTED = tuple(
    (name, {"model": "chain", **inputs})
    for shift in (1.0, 3.0, 7.0)
    for name, inputs in (
        ("ModelSamplingSD3", {"shift": shift}),
        ("ModelSamplingAuraFlow", {"shift": shift}),
        ("ModelSamplingFlux", {"max_shift": shift, "base_shift": 0.5, "width": 512, "height": 512}),
    )
)

Evaluations = list[list[list[int]]]
"""Of one run: for each evaluation the calls of the network, each with the kinds of its rows."""


class StepGraphs(Generator):
    """Makes graphs with one Reuse Steps or more.

    Args:
        object_info: what the server says about all nodes.
        compiled: share of graphs that may have a node that compiles.
    """

    def __init__(self, object_info: dict[str, Any], compiled: float = 0.1) -> None:
        super().__init__(object_info, compiled)
        entries = {entry.name: entry for entry in inputs_of(object_info["KSampler"])}
        self._samplers = [name for name in entries["sampler_name"].choices if name not in NOT_TRIED]
        self._schedulers = entries["scheduler"].choices
        self._inputs = list(inputs_of(object_info[NODE]))

    def graph(self, seed: int, quick: bool = True) -> Graph:
        graph = super().graph(seed, quick)
        draw = random.Random(f"steps {seed}")
        if quick and graph.kind == "sd15" and graph.shape != "controlnet" and draw.random() < 0.8:
            graph.kind = "smallest"  # half a minute less
        graph.sampling = {
            "steps": draw.choice([8, 9, 12, 12, 16, 20]),
            "cfg": draw.choice([1.0, 1.5, 4.0, 4.0, 7.0]),
            "sampler_name": draw.choice(["euler", "dpmpp_2m", *self._samplers]),
            "scheduler": draw.choice(["normal", "karras", *self._schedulers]),
        }
        if graph.shape == "dual_model":  # ComfyUI runs the second model with our nodes only if the first one has some
            graph.chains[1] = [node for node in graph.chains[1] if node[0] not in self.ours]
        for number, chain in enumerate(graph.chains):
            if number == 0 or (graph.shape != "dual_model" and draw.random() < 0.5):
                chain.insert(draw.randint(0, len(chain)), (NODE, self._settings(draw)))
        graph.ours = [node for chain in graph.chains for node in chain if node[0] in self.ours]
        for name, inputs in graph.ours:
            if "reuse_steps" in inputs:  # a preset with one of its own: then there is no graph without the node
                inputs["reuse_steps"] = False
            if name == NODE:  # a refusal is right, but there is no picture to judge
                inputs["strict"] = False
        if draw.random() < 0.4:  # another schedule than the model's own
            chain = draw.choice(graph.chains)
            chain.insert(draw.randint(0, len(chain)), ZERO_SNR if graph.kind in UNETS else draw.choice(SHIFTED))
        return graph

    def _settings(self, draw: random.Random) -> dict[str, Any]:
        inputs = {entry.name: legal(entry, draw) for entry in self._inputs if entry.kind != "MODEL"}
        return {"model": "chain", **inputs, "budget": draw.choice([0.0, 0.02, 0.05, 0.15, 0.5, 1.0]), "strict": False}


class StepJudge(Judge):
    """Says what is wrong with such a graph.

    With a budget of 0 it must draw the bits that it draws without the node; a second run and one on a fresh model must
    draw those of the first, as must one in which nobody looks on; counts must be true and estimates numbers; what is
    drawn without the node must have no other error with it, and the same bits afterwards.
    """

    def _judge(self, graph: Graph) -> Verdict:
        verdict, fresh = Verdict(faults=graph.fault), 1 + graph.seed
        without = graph.without(NODE)
        try:
            plain = self._draw(without, 0)
        except PromptFailed as error:
            return self._not_drawn(graph, error)
        if graph.fault != "none":
            self._fault(graph, verdict)
        try:
            zero = self._draw(_with_budget(graph, 0.0), 0)
            prompt = graph.prompt(True, 0, self.again(), truth="steps")
            ours = self.run(prompt)
        except PromptFailed as error:
            verdict.problems.append(f"{error.node_type}: {error.exception_type}: {error}\n{error.traceback[-1500:]}")
            verdict.state = "wrong"
            return verdict
        verdict.distance = distance(ours.samples, plain.samples)
        verdict.problems += check_steps(prompt, ours)
        if not ours.samples.isfinite().all() and plain.samples.isfinite().all():
            verdict.problems.append("the picture is not finite")
        self._same("a budget of 0 changes the picture", zero, plain, verdict)
        self._same("a second run differs", self._draw(graph, 0, truth=""), ours, verdict)
        if graph.unload:
            self.client.free()
        self._same("the same graph on a fresh model differs", self._draw(graph, fresh), ours, verdict)
        self._same("without the node, afterwards, it differs", self._draw(without, 0), plain, verdict)
        verdict.state = "wrong" if verdict.problems else "right"
        if verdict.problems and self._differs_without_us(graph):
            return Verdict("not a graph", note="ComfyUI's own nodes draw another picture in a second run")
        verdict.note = ", ".join(f"{name} {value:g}" for name, value in _counts(prompt, ours).items() if value)
        return verdict

    def _differs_without_us(self, graph: Graph) -> bool:
        """Return whether the nodes of others keep something between runs: EasyCache with TomePatchModel does."""
        copy = 10**6 + graph.seed
        first, second = (self.run(graph.prompt(False, copy, self.again())) for _ in range(2))
        return first.digest != second.digest

    def _draw(self, graph: Graph, copy: int, truth: str = "steps") -> Kept:
        return self.run(graph.prompt(True, copy, self.again(), truth=truth))

    def _same(self, problem: str, found: Kept, wanted: Kept, verdict: Verdict) -> None:
        if found.digest != wanted.digest:
            verdict.problems.append(f"{problem} by {distance(found.samples, wanted.samples):.3g}")

    def _not_drawn(self, graph: Graph, error: PromptFailed) -> Verdict:
        """Leave out a node of ours that has refused; where ComfyUI's own fail, there is nothing to see."""
        note = str(error).splitlines()[0]
        if is_sentence_of_ours(error):
            left = graph.without(str(error.node_type))
            return self._judge(left) if len(left.ours) < len(graph.ours) else Verdict("refused", note=note)
        try:
            self.run(graph.prompt(False, 10**6 + graph.seed, self.again()))
        except PromptFailed:
            return Verdict("not a graph", note=note)
        return Verdict("wrong", [f"{error.node_type}: {error.exception_type}: {error}\n{error.traceback[-1500:]}"])


def _with_budget(graph: Graph, budget: float) -> Graph:
    def changed(node: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        return (node[0], {**node[1], "budget": budget}) if node[0] == NODE else node

    return replace(graph, chains=[[changed(node) for node in chain] for chain in graph.chains])


def _counts(prompt: dict[str, Any], ours: Kept) -> dict[str, float]:
    node = attached(prompt, "TrustSteps").get(NODE)
    counts: dict[str, float] = ours.told[node]["counts"] if node is not None and node in ours.told else {}
    return counts


def check_steps(prompt: dict[str, Any], ours: Kept) -> list[str]:
    """Return what the report of the first chain's Reuse Steps says that is not so."""
    counts, runs = _counts(prompt, ours), ours.truth
    problems = [f"{name} is {value}" for name, value in counts.items() if not math.isfinite(value)]
    problems += [f"says {event['details']}" for event in ours.told.values() if "nan" in str(event["details"]).split()]
    if not counts.get("evaluations") or not runs:
        return problems  # it stepped aside, or the schedule is too short
    said = (counts["evaluations"], counts["forecast"], counts["computed"])
    found = [_counted(some) for number in range(len(runs)) for some in combinations(runs, number + 1)]
    return (
        problems if said in found else [*problems, f"says {said} evaluations, forecast, computed: there were {found}"]
    )


def _counted(runs: Sequence[Evaluations]) -> tuple[int, int, int]:
    """Return evaluations, those without a call, and those with one, of runs; the node steps aside in others."""
    evaluations = [calls for run in runs for calls in run]
    forecast = sum(not calls for calls in evaluations)
    return len(evaluations), forecast, len(evaluations) - forecast
