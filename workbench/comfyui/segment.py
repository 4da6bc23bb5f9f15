"""A part of a workflow that is run again and again: its nodes, with some of their inputs given from outside."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ...core.errors import InvalidSetting
from .prompt import Link, Prompt, class_of, link_of
from .seeds import SEEDS, later_seed

NOT_AGAIN = "waits for others, or makes nodes of its own: it cannot be run repeatedly"
JUDGE_EARLIER = "Judge the nodes before it by a sampler that comes earlier."


def runs_again(node: str) -> bool:
    """Return whether a type of nodes can be run repeatedly, as far as it declares that."""
    kind = class_of(node)
    waits = inspect.iscoroutinefunction(getattr(kind, getattr(kind, "FUNCTION", ""), None))
    return not waits and not (hasattr(kind, "GET_SCHEMA") and kind.GET_SCHEMA().enable_expand)


@dataclass(frozen=True)
class Segment:
    """Nodes in the API format; ``seeded`` are those that draw from a seed.

    Where a link leads to another node, :meth:`run` is given its value.
    """

    nodes: Prompt
    seeded: frozenset[str] = frozenset()

    def run(self, ends: Iterable[Link], given: Mapping[Link, Any], seed: int = 0) -> dict[Link, Any]:
        """Return what the ends give, with ``given`` as the outputs of other nodes. ComfyUI's own code runs each node.

        ``seed`` is added to all seeds, also to those that come over a link.

        `InvalidSetting` for a node that does not end at once, or makes nodes of its own.
        """
        made: dict[str, list[list[Any]]] = {}
        for (id, slot), value in given.items():
            outputs = made.setdefault(id, [])
            outputs += [[None]] * (slot + 1 - len(outputs))
            outputs[slot] = [value]
        ends, known = list(ends), set(made)
        for id in (one for origin, _ in ends for one in self._in_order(origin, known)):
            made[id] = _outputs(id, self.nodes[id], made, seed if id in self.seeded else 0)
        return {(origin, slot): made[origin][slot][0] for origin, slot in ends}

    def _in_order(self, id: str, known: set[str]) -> list[str]:
        """Return a node and those that it needs, each after those that it needs itself."""
        if id in known:
            return []
        known.add(id)
        links = (link_of(value) for value in self.nodes[id]["inputs"].values())
        needed = dict.fromkeys(link[0] for link in links if link is not None)
        return [one for origin in needed for one in self._in_order(origin, known)] + [id]


def _outputs(id: str, node: Mapping[str, Any], made: Mapping[str, list[list[Any]]], seed: int) -> list[list[Any]]:
    import execution
    from comfy_execution.utils import get_executing_context

    kind, context = class_of(node["class_type"]), get_executing_context()
    known = SimpleNamespace(get_cache=lambda origin, _: SimpleNamespace(outputs=made[origin]))
    data, _, v3 = execution.get_input_data(node["inputs"], kind, id, known)
    for name in SEEDS:
        if seed and name in data:
            data[name] = [later_seed(value, seed) if isinstance(value, int) else value for value in data[name]]
    running = execution.get_output_data("" if context is None else context.prompt_id, id, kind(), data, v3_data=v3)
    ended = _ended(running)
    if ended is None or ended[2]:
        raise InvalidSetting(f"The node {node['class_type']} {NOT_AGAIN}.", JUDGE_EARLIER)
    outputs: list[list[Any]] = ended[0]
    return outputs


def _ended(running: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns at once; None if it waits. This code is inside of ComfyUI's event loop."""
    try:
        running.send(None)
    except StopIteration as end:
        return end.value
    running.close()
    return None
