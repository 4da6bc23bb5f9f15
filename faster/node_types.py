"""What ComfyUI knows of types of nodes, and what nodes give that need no run."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

Prompt = Mapping[str, Mapping[str, Any]]
"""Nodes by execution id: ``{"4": {"class_type": ..., "inputs": {"model": ["3", 0], "steps": 20}}}``."""

Link = tuple[str, int]
"""The node that a value comes from, and which of its outputs."""


def link_of(value: Any) -> Link | None:
    """Return where an input's value comes from; None for a value of its own."""
    # Imported here: the command that only asks a server has no ComfyUI.
    from comfy_execution.graph_utils import is_link

    return (value[0], int(value[1])) if is_link(value) else None


def input_types(node: str) -> dict[str, str]:
    """Return the types of the inputs of a type of nodes, by their names; empty if it is not installed."""
    found = class_of(node)
    if found is None:
        return {}
    try:
        return {name: entry[0] for name, entry in inputs_of(found).items() if isinstance(entry[0], str)}
    except Exception:  # code of another pack, which may look for files; after an error the node counts as unknown
        return {}


def default_values(node: str) -> dict[str, Any]:
    """Return the values that a new node of an installed type has, as far as its type says."""
    values = {name: _default(entry) for name, entry in inputs_of(class_of(node)).items()}
    return {name: value for name, value in values.items() if value is not None}


def inputs_of(kind: Any) -> dict[str, Sequence[Any]]:
    """Return what a class of nodes says of its inputs, by their names."""
    groups = kind.INPUT_TYPES()
    return {name: entry for group in ("required", "optional") for name, entry in groups.get(group, {}).items()}


def _default(entry: Sequence[Any]) -> Any:
    if len(entry) > 1 and "default" in entry[1]:
        return entry[1]["default"]
    return next(iter(choices_of(entry)), None)


def choices_of(entry: Sequence[Any]) -> list[Any]:
    """Return the values that an input offers, from what its type says of it; those with inputs of their own by key."""
    listed = entry[0] if isinstance(entry[0], list) else entry[1].get("options", ()) if len(entry) > 1 else ()
    return [one["key"] if isinstance(one, dict) and "key" in one else one for one in listed]


def output_types(node: str) -> tuple[str, ...]:
    """Return the types of the outputs of a type of nodes; empty if it is not installed."""
    return tuple(str(kind) for kind in getattr(class_of(node), "RETURN_TYPES", ()) or ())


def title_of(node: str) -> str:
    """Return the title of an installed type of nodes."""
    titles = getattr(sys.modules.get("nodes"), "NODE_DISPLAY_NAME_MAPPINGS", {})
    schema = getattr(class_of(node), "GET_SCHEMA", None)  # what a test has installed is in no list of titles
    return titles.get(node) or (schema and schema().display_name) or node


def class_of(node: str) -> Any:
    """Return the class of a type of nodes; None if it is not installed."""
    # Looked up, never imported: importing it would load ComfyUI's whole graph of modules.
    return getattr(sys.modules.get("nodes"), "NODE_CLASS_MAPPINGS", {}).get(node)


def value_of(nodes: Prompt, link: Link) -> Any:
    """Return what an output gives, made by ComfyUI's own code, which runs each node.

    `ValueError` for a node that does not end at once, and what the nodes raise.
    """
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
