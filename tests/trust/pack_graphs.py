"""Random graphs with nodes of other packs: what changes a MODEL, samples, or makes a sampler or a schedule."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from graphs import Generator, Graph
from judge import Judge, Verdict
from schemas import WIDGETS, Input, inputs_of, legal

GIVEN = ("MODEL", "LATENT", "CONDITIONING", "MASK", "VAE", "SAMPLER", "SIGMAS")
"""Types of links that a graph can give to nodes of others."""

KEPT = 10**7
"""Copies of models from this number on live as long as the server: see ``trust_nodes/models.py``."""
STEPS = {"steps": 10, "start_at_step": 0, "end_at_step": 10000, "n_steps": 10}
"""Values of inputs by which a node of others samples as long as the rest of the graph."""


@dataclass
class Sampling:
    """How a graph samples with nodes of other packs: one that samples whole, or one that makes a sampler or a schedule.

    ``what``: ``LATENT``, ``SAMPLER`` or ``SIGMAS``; ``output``: which of the node's outputs has it.
    """

    what: str
    name: str
    output: int
    inputs: dict[str, Any] = field(default_factory=dict)


class PackGraphs(Generator):
    """Makes graphs with at least one node of another pack, of those that can be given what they need."""

    def __init__(self, object_info: dict[str, Any], compiled: float = 0.1) -> None:
        super().__init__(object_info, compiled)
        self.table = {name: list(inputs_of(object_info[name])) for name in self.others}
        self.table = {name: inputs for name, inputs in self.table.items() if _can_be_given(inputs)}
        outputs = {name: object_info[name]["output"] for name in self.table}
        self.models = {name: self.table[name] for name in self.table if outputs[name][:1] == ["MODEL"]
                       and _has(self.table[name], "MODEL") and "LATENT" not in outputs[name]}  # fmt: skip
        self.sampling = [
            Sampling(what, name, outputs[name].index(what))
            for name in self.table
            for what in ("LATENT", "SAMPLER", "SIGMAS")
            if _makes(what, outputs[name], self.table[name])
        ]
        self.own = dict(self.core)
        self._packs = {name: str(object_info[name]["python_module"]) for name in self.table}

    def graph(self, seed: int, quick: bool = True) -> Graph:
        draw = random.Random(f"packs {seed}")
        models = self._of_one_pack(draw, list(self.models))
        others = draw.random() < 0.8 and any("Compile" not in name for name in models)
        self.core = {name: self.models[name] for name in models} if others else self.own
        graph = super().graph(seed, quick)
        for chain in graph.chains[:1]:
            fitting = [name for name in models if "Compile" not in name]  # of those that trace there are enough
            if fitting and not any(name in self.models for name, _ in chain):
                name = draw.choice(fitting)
                node = self._node(draw, {name: self.models[name]}, graph.kind, compiled=False)
                chain.insert(draw.randint(0, len(chain)), node)
        graph.core = [node for chain in graph.chains for node in chain if node[0] not in self.ours]
        if draw.random() < 0.5:
            graph.more_steps = {"steps": 10}
        if self.sampling and draw.random() < 0.4:
            graph.shape, graph.chains = "by_others", graph.chains[:1]
            names = self._of_one_pack(draw, [one.name for one in self.sampling])
            chosen = draw.choice([one for one in self.sampling if one.name in names])
            given = {entry.name: self._value(entry, draw) for entry in self.table[chosen.name]}
            inputs = {name: value for name, value in given.items() if value is not None}
            graph.by_others = replace(chosen, inputs=inputs)
            graph.core.append((chosen.name, inputs))
        graph.ours = [node for chain in graph.chains for node in chain if node[0] in self.ours]
        return graph

    def _of_one_pack(self, draw: random.Random, names: list[str]) -> list[str]:
        """Return those of one pack: some packs have hundreds of nodes, and others one."""
        packs = sorted({self._packs[name] for name in names})
        pack = draw.choice(packs) if packs else ""
        return [name for name in names if self._packs[name] == pack]

    def _value(self, entry: Input, draw: random.Random) -> Any:
        """Return what an input is given; None if it is left out."""
        if entry.name in STEPS:
            return STEPS[entry.name]
        if entry.kind in WIDGETS:
            return legal(entry, draw)
        return entry.kind if not entry.optional and entry.kind in GIVEN else None


class PackJudge(Judge):
    """Says what is wrong with such a graph, unless the packs alone draw another picture each time or fail.

    Some packs leave something on a model that other graphs find: a graph that is wrong is judged once more on models
    that have seen no other.
    """

    def _judge(self, graph: Graph) -> Verdict:
        verdict = super()._judge(graph)
        if verdict.state == "wrong" and self._wrong_without_us(graph):
            return Verdict("not a graph", note="without our nodes it draws another picture in a second run too")
        if verdict.state == "wrong":
            self.home = KEPT + self.again()
            again = super()._judge(graph)
            again.note = again.note if again.problems else f"on models of its own; before: {verdict.problems[0]}"
            return again
        return verdict

    def _wrong_without_us(self, graph: Graph) -> bool:
        """Return whether the plain graph alone changes: on fresh models, on used ones, after a fault."""
        chains = [[node for node in chain if not node[0].startswith("Paceline")] for chain in graph.chains]
        plain, digests = replace(graph, chains=chains), set()
        for copy in (10**6 + graph.seed, 10**6 + graph.seed, 2 * 10**6 + graph.seed):
            digests.add(self.run(graph.prompt(False, copy, self.again())).digest)
            if graph.fault != "none":
                self._fault(plain, Verdict(), copy)  # what the packs keep in these nodes is as after a fault of ours
        return len(digests) > 1


def _can_be_given(inputs: list[Input]) -> bool:
    return all(entry.optional or entry.kind in (*WIDGETS, *GIVEN) for entry in inputs)


def _has(inputs: list[Input], kind: str) -> bool:
    return any(entry.kind == kind and not entry.optional for entry in inputs)


def _makes(what: str, outputs: list[str], inputs: list[Input]) -> bool:
    if what not in outputs:
        return False
    return what != "LATENT" or (_has(inputs, "MODEL") and _has(inputs, "CONDITIONING") and _has(inputs, "LATENT"))
