"""Runs a random graph plain and optimized, and says what is wrong. The oracle is a fresh, plain model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from comfy_host.client import ComfyClient, PromptFailed
from counts import check_counts
from distances import relative
from graphs import Graph

EXACT = ("PacelineSetAttentionProcessor", "PacelineFuseQKV", "PacelineCompileUNet", "PacelineRemoveOptimizations")
"""Our nodes that change the picture by rounding only; the rest are approximations."""
JUMPY = ("SelfAttentionGuidance", "TomePatchModel", "EasyCache", "LazyCache", "TCFG")
"""Nodes of ComfyUI that decide by comparing numbers: rounding can tip the scales, and the picture jumps."""
MAGNIFYING = ("CFGZeroStar",)
"""Nodes of ComfyUI that divide by what the network gives: a difference of 0.2 without them is one of 1 with them."""
ROUNDING, APPROXIMATE, MAGNIFIED = 0.02, 1.5, 4.5
"""Largest distance to the plain picture, as a share of its size, on networks with random weights."""


@dataclass
class Verdict:
    """What was found of one graph.

    Attributes:
        state: "right", "refused" (a sentence of ours), "not a graph" (ComfyUI's own nodes alone fail), or "wrong".
        problems: what is wrong.
        note: why it was refused.
        distance: between the two pictures.
        lost: whether ComfyUI has lost sight of a model after a failed prompt, by a fault of its own.
    """

    state: str = "right"
    problems: list[str] = field(default_factory=list)
    note: str = ""
    distance: float = 0.0
    faults: str = "none"
    lost: bool = False


@dataclass
class Kept:
    """A picture that a run has left, and what was counted beside it."""

    samples: torch.Tensor
    digest: str
    truth: Any
    told: dict[str, dict[str, Any]]


class Judge:
    """Runs graphs on one server.

    Args:
        client: of the server.
        output: the server's output folder.
        log: returns what the server has printed.

    ``home``: the copy of each model that has lived as long as the server.
    """

    def __init__(self, client: ComfyClient, output: Path, log: Callable[[], str]) -> None:
        self.client, self.output, self.log, self._again = client, output, log, 0
        self.failed, self.home = False, 0

    def run(self, prompt: dict[str, Any]) -> Kept:
        """Run a prompt and return what it kept."""
        from safetensors.torch import load_file

        try:
            result = self.client.run(prompt)
        except PromptFailed:
            self.failed = True
            raise
        shown = next(json.loads(texts[0]) for texts in result.texts.values() if texts[0].startswith('{"digest'))
        samples = load_file(self.output / "trust" / "kept.safetensors")["samples"]
        told = {event["node"]: event for event in result.of_type("paceline.activity") if event["node"] is not None}
        return Kept(samples, shown["digest"], shown["truth"], told)

    def judge(self, graph: Graph) -> Verdict:
        """Run all forms of a graph, and read what the server prints meanwhile."""
        seen = len(self.log())
        verdict = self._judge(graph)
        if "memory leak" in self.log()[seen:]:
            self._leak(verdict)
        return verdict

    def memory(self) -> dict[str, float]:
        """Return what the server holds."""
        result = self.client.run({"0": {"class_type": "TrustMemory", "inputs": {"again": self.again()}}})
        found: dict[str, float] = json.loads(result.texts["0"][0])
        return found

    def _leak(self, verdict: Verdict) -> None:
        """Tell a leak from a model that ComfyUI itself loses sight of after a failed prompt: see ``leaks``."""
        found = self.memory()
        if self.failed and found["lost_by_comfyui"] and not found["leaked"]:
            verdict.lost = True
        else:
            verdict.problems.append("ComfyUI sees a model that is held by nobody it knows, and collects garbage")
            verdict.state = "wrong"

    def _judge(self, graph: Graph) -> Verdict:
        fresh, verdict = 1 + graph.seed, Verdict(faults=graph.fault)
        try:
            plain = self.run(graph.prompt(False, fresh, self.again(), truth="plain"))
        except PromptFailed as error:
            return Verdict("not a graph", note=str(error).splitlines()[0])
        if graph.fault != "none":
            self._fault(graph, verdict, self.home)
        try:
            prompt = graph.prompt(True, self.home, self.again(), truth="" if compiles(graph) else "ours")
            ours = self.run(prompt)
        except PromptFailed as error:
            return self._refused(graph, error, verdict, plain)
        self._compare(graph, plain, ours, verdict)
        if ours.truth is not None:
            verdict.problems += check_counts(prompt, ours.told, plain.truth, ours.truth)
        if graph.unload:
            self.client.free()
        again = self.run(graph.prompt(True, fresh, self.again(), truth="" if compiles(graph) else "ours"))
        if again.digest != ours.digest:
            found = distance(again.samples, ours.samples)
            verdict.problems.append(f"the same graph on a fresh model differs by {found:.3g}")
        self._baseline(graph, plain, verdict)
        verdict.state = "wrong" if verdict.problems else "right"
        return verdict

    def again(self) -> int:
        """Return a number that no run has had: nothing is shown from ComfyUI's cache."""
        self._again += 1
        return self._again

    def _fault(self, graph: Graph, verdict: Verdict, copy: int = 0) -> None:
        """Let a run fail in the middle; what follows must not notice."""
        try:
            self.run(graph.prompt(True, copy, self.again(), fault=graph.fault))
        except PromptFailed as error:
            ours = is_sentence_of_ours(error)
            expected = "ordered by a test" in str(error) or "interrupted" in str(error) or ours
            if not expected and graph.fault not in ("memory", "cancel"):
                kind = error.exception_type.split("/")[-1]  # without the folder of a pack
                verdict.problems.append(f"fault {graph.fault} became {kind}: {error}")

    def _refused(self, graph: Graph, error: PromptFailed, verdict: Verdict, plain: Kept) -> Verdict:
        if not is_sentence_of_ours(error):
            verdict.problems.append(f"{error.node_type}: {error.exception_type}: {error}\n{error.traceback[-1500:]}")
        verdict.note = f"{error.node_type}: {error}"
        self._baseline(graph, plain, verdict)
        left = graph.without(str(error.node_type))
        if left.ours and len(left.ours) < len(graph.ours) and not verdict.problems:
            after = self._judge(left)
            after.note = f"{verdict.note} | {after.note}"
            return after
        verdict.state = "wrong" if verdict.problems else "refused"
        return verdict

    def _baseline(self, graph: Graph, plain: Kept, verdict: Verdict) -> None:
        after = self.run(graph.prompt(False, self.home, self.again(), truth="plain"))
        if after.digest != plain.digest:
            verdict.problems.append(f"baseline afterwards differs by {distance(after.samples, plain.samples):.3g}")

    def _compare(self, graph: Graph, plain: Kept, ours: Kept, verdict: Verdict) -> None:
        if not plain.samples.isfinite().all():
            return  # ComfyUI's own nodes with legal extremes
        if not ours.samples.isfinite().all():
            if graph.core and ("PacelineModelPrecision", "fp16") in {
                (name, row.get("dtype")) for name, row in graph.ours
            }:
                return  # weights that ComfyUI's nodes have made ten times as large have no room in fp16
            verdict.problems.append("the picture is not finite")
            return
        verdict.distance = distance(ours.samples, plain.samples)
        if verdict.distance > tolerance(graph):
            verdict.problems.append(f"distance {verdict.distance:.3g}, allowed {tolerance(graph):g}")


def is_sentence_of_ours(error: PromptFailed) -> bool:
    """Return whether a prompt failed with an error of a class of our pack: it raises those on purpose."""
    return "paceline." in error.exception_type


def compiles(graph: Graph) -> bool:
    """Return whether torch traces the network; looking at its calls would be traced too."""
    return any("Compile" in name for name, _ in (*graph.ours, *graph.core))


def tolerance(graph: Graph) -> float:
    """Return the largest distance that our nodes in the graph may cause."""
    jumpy = any(name in JUMPY for name, _ in graph.core)
    if not jumpy and all(exact(name, inputs) for name, inputs in graph.ours):
        return ROUNDING
    return MAGNIFIED if any(name in MAGNIFYING for name, _ in graph.core) else APPROXIMATE


def exact(name: str, inputs: dict[str, Any]) -> bool:
    """Return whether a node of ours promises the same picture to rounding."""
    if name == "PacelineSetAttentionProcessor":
        return "sage" not in inputs["backend"]
    if name == "PacelineModelPrecision":
        return inputs["dtype"] == "fp32"
    return name in EXACT


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return how far apart two pictures are, which need not have the same size."""
    if one.shape != other.shape:
        return float("inf")
    return relative(one.float(), other.float())
