"""Random graphs: everything that people put between a loader and a picture, from a seed that repeats it.

A graph is made of a plain one, which has ComfyUI's own nodes only, and of our nodes at any places of its chains of
models. So both draw the same picture, but for what ours change. Nodes and their settings come from the server's
description of them: a new node of ours takes part from the day it is there.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from building import Builder, Prompt
from schemas import WIDGETS, Input, inputs_of, legal
from tables import CORE, LINKS, SHAPES, TRANSFORMERS, TWO_CHAINS, UNETS, UNETS_ONLY


@dataclass
class Graph:
    """A random graph.

    Attributes:
        seed: repeats it.
        kind: of the model.
        shape: what is done with the model.
        ours: nodes of ours in it, as (class, inputs).
        core: nodes of ComfyUI that change the model.
        fault: what happens in the middle of an extra run: "none", "memory", "error", "cancel".
        unload: whether models are unloaded between the runs.
        sampling: other settings of its samplers: ``steps``, ``cfg``, ``sampler_name``, ``scheduler``.
        more_steps: of its samplers in any case, where what is kept from step to step needs them.
        by_others: what samples, where that is a node of another pack (``pack_graphs.Sampling``).
    """

    seed: int
    kind: str
    shape: str
    ours: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    core: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    fault: str = "none"
    unload: bool = False
    chains: list[list[tuple[str, dict[str, Any]]]] = field(default_factory=list)
    sampling: dict[str, Any] = field(default_factory=dict)
    more_steps: dict[str, int] = field(default_factory=dict)
    by_others: Any = None

    def __str__(self) -> str:
        names = [f"{name}{inputs}" for chain in self.chains for name, inputs in chain]
        what = ", ".join([self.kind, self.shape, self.fault, *map(str, self.sampling.values())])
        what += f", {self.by_others.name}{self.by_others.inputs}" if self.by_others else ""
        return f"graph {self.seed}: {what}: {' > '.join(names)}"

    def without(self, node_class: str) -> Graph:
        """Return the graph without all nodes of a class of ours, e.g. those that have refused."""
        chains = [[node for node in chain if node[0] != node_class] for chain in self.chains]
        return replace(self, chains=chains, ours=[node for node in self.ours if node[0] != node_class])

    def prompt(self, optimized: bool, copy: int, again: int, fault: str = "none", truth: str = "") -> Prompt:
        """Return the graph in API format.

        Args:
            optimized: with our nodes.
            copy: which copies of the models to use; another number is another object with the same weights.
            again: another number makes ComfyUI sample again instead of showing what it has kept.
            fault: what happens while it samples.
            truth: a name under which calls are counted; empty to count none.
        """
        return Builder(self, optimized, copy, again, fault, truth).build()


class Generator:
    """Makes graphs from seeds.

    Args:
        object_info: what the server says about all nodes.
        compiled: share of graphs that may have a node that compiles; tracing takes seconds.
        backend: what compiles; ``eager`` traces as any other, and ``inductor`` takes half a minute for each graph.
    """

    def __init__(self, object_info: dict[str, Any], compiled: float = 0.1, backend: str = "eager") -> None:
        self.compiled, self.backend = compiled, backend
        self.others = [name for name, info in object_info.items() if _of_another_pack(info)]
        known = [name for name in (*CORE, *self.others) if name in object_info]
        self.core = {name: list(inputs_of(object_info[name])) for name in known}
        self.core = {name: inputs for name, inputs in self.core.items() if _model_node(object_info[name], inputs)}
        self.ours = {name: list(inputs_of(info)) for name, info in object_info.items() if name.startswith("Paceline")}
        self.ours = {name: inputs for name, inputs in self.ours.items() if _model_node(object_info[name], inputs)}

    def graph(self, seed: int, quick: bool = False) -> Graph:
        """Return the graph of this seed; a ``quick`` one has no SDXL, whose 70 blocks take half a minute."""
        draw = random.Random(seed)
        is_unet = draw.random() < 0.6
        kind = draw.choice(UNETS if is_unet else TRANSFORMERS)
        shape = draw.choice(SHAPES)
        kind = "sd15" if quick and kind == "sdxl" else kind
        if shape == "controlnet":
            kind = "sd15"
        graph = Graph(seed, kind, shape)
        graph.fault = draw.choice(["none"] * 5 + ["memory", "error", "cancel"])
        graph.unload = draw.random() < 0.2
        compiled = draw.random() < self.compiled and kind != "sdxl"  # tracing 70 blocks takes two minutes
        # A second chain is for the second sampler, or the second model of a guider.
        for _ in range(2 if shape in TWO_CHAINS else 1):
            chain: list[tuple[str, dict[str, Any]]] = []
            for _ in range(draw.choice([0, 0, 1, 1, 2, 3])):
                chain.append(self._node(draw, self.core, kind, compiled=False))
            for _ in range(draw.choice([1, 1, 2, 3, 4])):
                chain.insert(draw.randint(0, len(chain)), self._node(draw, self.ours, kind, compiled))
            graph.chains.append(chain)
        graph.ours = [node for chain in graph.chains for node in chain if node[0] in self.ours]
        graph.core = [node for chain in graph.chains for node in chain if node[0] in self.core]
        graph.more_steps = {"steps": 8} if keeps_differences(graph.ours) else {}
        return graph

    def compiled_graphs(self, first: int) -> Iterator[Graph]:
        """Yield the graphs from the seed ``first`` on that have a node which compiles, small ones only."""
        graphs = (self.graph(seed, quick=True) for seed in itertools.count(first))
        return (graph for graph in graphs if any(name.startswith("PacelineCompile") for name, _ in graph.ours))

    def _node(self, draw: random.Random, table: dict[str, list[Input]], kind: str, compiled: bool) -> Any:
        allowed = [name for name in sorted(table) if compiled or "Compile" not in name]
        if kind == "sdxl":  # merging its keys one by one takes ComfyUI minutes
            allowed = [name for name in allowed if not name.startswith("ModelMerge")]
        if kind not in UNETS:
            allowed = [name for name in allowed if name not in UNETS_ONLY]
        if compiled and draw.random() < 0.4:
            allowed = [name for name in allowed if "Compile" in name] or allowed
        name = draw.choice(allowed)
        while name == "PacelineQuantizeInt8" and kind == "sdxl" and draw.random() < 0.9:
            name = draw.choice(allowed)  # to look at its 700 layers takes a minute
        inputs: dict[str, Any] = {}
        for entry in table[name]:
            if entry.kind in WIDGETS:
                inputs[entry.name] = legal(entry, draw)
            elif entry.kind == "MODEL":
                inputs[entry.name] = "chain" if "chain" not in inputs.values() else "other"
            elif not entry.optional or (entry.kind in LINKS and draw.random() < 0.3):
                inputs[entry.name] = entry.kind
        if name.startswith("PacelineCompile"):
            inputs["backend"], inputs["mode"] = self.backend, "default"
        if name == "PacelineQuantizeInt8" and draw.random() < 0.5:
            inputs["include"] = "attn, ff, mlp"
        return name, inputs


def keeps_differences(nodes: list[tuple[str, dict[str, Any]]]) -> bool:
    """Return whether an Apply ToMe among nodes keeps the difference that reducing makes: in a few steps none does."""
    given = [inputs for name, inputs in nodes if name == "PacelineApplyToMe"]
    return any(inputs.get("preset") != "custom" or inputs.get("residual", "off") != "off" for inputs in given)


def _of_another_pack(info: dict[str, Any]) -> bool:
    """Return whether a node is neither ComfyUI's nor ours nor of the tests."""
    folder, _, pack = str(info.get("python_module", "")).partition(".")
    return folder == "custom_nodes" and pack not in ("paceline", "trust_nodes", "icon_nodes")


def _model_node(info: dict[str, Any], inputs: list[Input]) -> bool:
    """Return whether a node makes a MODEL of a MODEL and of what we can give."""
    known = (*WIDGETS, "MODEL")
    needed = all(entry.optional or entry.kind in known for entry in inputs)
    return needed and info["output"][:1] == ["MODEL"] and any(entry.kind == "MODEL" for entry in inputs)
