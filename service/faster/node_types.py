"""What ComfyUI knows of types of nodes, and what nodes give that need no run."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

Prompt = Mapping[str, Mapping[str, Any]]
"""Nodes by execution id: ``{"4": {"class_type": ..., "inputs": {"model": ["3", 0], "steps": 20}}}``."""

Link = tuple[str, int]
"""The node that a value comes from, and which of its outputs."""


@dataclass(frozen=True)
class NodeType:
    """What ComfyUI knows of a type of nodes; of one that is not installed, or cannot say it, its title alone.

    Attributes:
        inputs: the types of its inputs, by their names.
        choices: the values that inputs offer, those with inputs of their own by key.
        defaults: the values of a new node, as far as they are known.
        outputs: the types of its outputs.
    """

    title: str
    inputs: Mapping[str, str]
    choices: Mapping[str, Sequence[Any]]
    defaults: Mapping[str, Any]
    outputs: tuple[str, ...]


def node_type(name: str) -> NodeType:
    """Return ComfyUI's facts about a type of nodes."""
    kind = class_of(name)
    inputs, choices, defaults = dict[str, str](), dict[str, list[Any]](), dict[str, Any]()
    for put, (type, about) in _entries(kind).items():
        if isinstance(type, str):
            inputs[put] = type
        listed = type if isinstance(type, list) else about.get("options") or ()
        choices[put] = [one["key"] if isinstance(one, dict) and "key" in one else one for one in listed]
        default = about.get("default", next(iter(choices[put]), None))
        if default is not None:
            defaults[put] = default
    outputs = getattr(kind, "RETURN_TYPES", ()) or ()
    titles: Mapping[str, str] = getattr(sys.modules.get("nodes"), "NODE_DISPLAY_NAME_MAPPINGS", {})
    return NodeType(titles.get(name, name), inputs, choices, defaults, tuple(map(str, outputs)))


def _entries(kind: Any) -> dict[str, tuple[Any, Mapping[str, Any]]]:
    """Return type and options of each input of a class of nodes."""
    try:
        groups = {} if kind is None else kind.INPUT_TYPES()
        every = [each for group in ("required", "optional") for each in groups.get(group, {}).items()]
        return {name: (entry[0], entry[-1] if isinstance(entry[-1], Mapping) else {}) for name, entry in every}
    except Exception:  # code of another pack, which may look for files; after an error the node counts as unknown
        return {}


def class_of(node: str) -> Any:
    """Return the class of a type of nodes; None if it is not installed."""
    # Looked up, never imported: importing it would load ComfyUI's whole graph of modules.
    return getattr(sys.modules.get("nodes"), "NODE_CLASS_MAPPINGS", {}).get(node)


def outputs_of(nodes: Prompt, order: Iterable[str]) -> dict[str, list[list[Any]]]:
    """Return the outputs of nodes by ComfyUI's own code, which runs them: each after those that it needs.

    `ValueError` for a node that does not end at once, and what the nodes raise.
    """
    import execution

    made: dict[str, list[list[Any]]] = {}
    known = SimpleNamespace(get_cache=lambda origin, _: SimpleNamespace(outputs=made[origin]))
    for id in order:
        kind = class_of(nodes[id]["class_type"])
        data, _, v3 = execution.get_input_data(nodes[id]["inputs"], kind, id, known)
        ended = _ended(execution.get_output_data("", id, kind(), data, v3_data=v3))
        if ended is None or ended[2]:
            raise ValueError("It waits for others, or makes nodes of its own.")
        made[id] = ended[0]
    return made


def _ended(running: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine at once; None if it waits: this code is in no event loop."""
    try:
        running.send(None)
    except StopIteration as end:
        return end.value
    running.close()
    return None
