"""Values that nodes of a workflow make, before it runs: ComfyUI's own code runs each node."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from .prompt import Link, Prompt, class_of, link_of


def value_of(nodes: Prompt, link: Link) -> Any:
    """Return what an output gives; `ValueError` for a node that does not end at once, and what the nodes raise."""
    made: dict[str, list[list[Any]]] = {}
    for id in _in_order(nodes, link[0], set()):
        made[id] = _outputs(nodes, id, made)
    return made[link[0]][link[1]][0]


def _in_order(nodes: Prompt, id: str, known: set[str]) -> list[str]:
    """Return a node and those that it needs, each after those that it needs itself."""
    if id in known:
        return []
    known.add(id)
    links = (link_of(value) for value in nodes[id]["inputs"].values())
    needed = dict.fromkeys(link[0] for link in links if link is not None)
    return [one for origin in needed for one in _in_order(nodes, origin, known)] + [id]


def _outputs(nodes: Prompt, id: str, made: dict[str, list[list[Any]]]) -> list[list[Any]]:
    import execution

    kind = class_of(nodes[id]["class_type"])
    known = SimpleNamespace(get_cache=lambda origin, _: SimpleNamespace(outputs=made[origin]))
    data, _, v3 = execution.get_input_data(nodes[id]["inputs"], kind, id, known)
    ended = _ended(execution.get_output_data("", id, kind(), data, v3_data=v3))
    if ended is None or ended[2]:
        raise ValueError("It waits for others, or makes nodes of its own.")
    outputs: list[list[Any]] = ended[0]
    return outputs


def _ended(running: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns at once; None if it waits: this code is in no event loop."""
    try:
        running.send(None)
    except StopIteration as end:
        return end.value
    running.close()
    return None
