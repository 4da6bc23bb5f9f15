"""A prompt, the form in which ComfyUI runs a workflow (its "API format"), and the descriptions of node types."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...core.errors import InvalidSetting

Prompt = Mapping[str, Mapping[str, Any]]
"""Nodes by execution id: ``{"4": {"class_type": ..., "inputs": {"model": ["3", 0], "steps": 20}}}``."""

_MOST_NODES = 3000
"""Looking at a workflow takes time that grows with the square of its nodes, and nothing can cancel it."""

_TITLE = 100
"""Characters of a title that are shown."""

Link = tuple[str, int]
"""The node that a value comes from, and which of its outputs."""


def require_prompt(sent: Any) -> Prompt:
    """Return what was given, if it is a prompt; `InvalidSetting` if not."""
    if not isinstance(sent, dict) or not all(
        isinstance(node, dict) and isinstance(node.get("class_type"), str) and isinstance(node.get("inputs", {}), dict)
        for node in sent.values()
    ):
        remedy = "Save it in ComfyUI with File > Export (API). It has class_type and inputs of each node."
        raise InvalidSetting("This is no workflow in the API format.", remedy)
    if len(sent) > _MOST_NODES:
        raise InvalidSetting(f"This workflow has {len(sent)} nodes.", f"At most {_MOST_NODES} are looked at.")
    return {str(id): {**node, "inputs": node.get("inputs", {})} for id, node in sent.items()}


def link_of(value: Any) -> Link | None:
    """Return where an input's value comes from; None for a value of its own."""
    if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[1], int):
        return str(value[0]), value[1]
    return None


def links_into(prompt: Prompt, id: str) -> dict[str, Link]:
    """Return where the inputs of a node come from, by their names, as far as other nodes of the prompt give them."""
    links = {name: link_of(value) for name, value in prompt[id]["inputs"].items()}
    return {name: link for name, link in links.items() if link is not None and link[0] in prompt}


def node_before(prompt: Prompt, id: str, *names: str) -> str | None:
    """Return the node that an input comes from; of several names, the first input that comes from one."""
    links = links_into(prompt, id)
    return next((links[name][0] for name in names if name in links), None)


def title_of(prompt: Prompt, id: str) -> str:
    """Return a node's title in one line, without characters that a terminal would take for a command."""
    node = prompt[id]
    about = node.get("_meta")
    title = about.get("title") if isinstance(about, Mapping) else None
    return "".join(char for char in str(title or node["class_type"]) if char.isprintable())[:_TITLE]


def failure_of(message: Mapping[str, Any]) -> str | None:
    """Return ComfyUI's message about a failed prompt, or its exception's type if that is empty; None after success."""
    said = str(message.get("exception_message") or "").strip()
    return said or message.get("exception_type")


def way_back(id: str | None, before: Callable[[str], str | None]) -> Iterator[str]:
    """Yield a node, its source, the source's source, and so on; ends at the first node that was seen before."""
    seen: set[str] = set()
    while id is not None and id not in seen:
        seen.add(id)
        yield id
        id = before(id)


def users_of(prompt: Prompt, ids: Iterable[str]) -> dict[str, None]:
    """Return the nodes that use what some nodes give, also through others."""
    users: dict[str, list[str]] = {}
    for id in prompt:
        for origin, _ in links_into(prompt, id).values():
            users.setdefault(origin, []).append(id)
    return reached(ids, lambda id: users.get(id, ()))


def needed_for(prompt: Prompt, id: str) -> dict[str, None]:
    """Return a node and those that it needs, directly or through others."""
    return {id: None} | reached([id], lambda one: (origin for origin, _ in links_into(prompt, one).values()))


def reached(ids: Iterable[str], following: Callable[[str], Iterable[str]]) -> dict[str, None]:
    """Return the nodes that follow after some, and after these, in the order in which they are found."""
    found: dict[str, None] = {}
    left = [*ids]
    while left:
        new = [id for id in following(left.pop()) if id not in found]
        found |= dict.fromkeys(new)
        left += new
    return found


def input_types(node: str) -> dict[str, str]:
    """Return the types of the inputs of a type of nodes, by their names; empty if it is not installed."""
    found = class_of(node)
    if found is None:
        return {}
    try:
        groups = found.INPUT_TYPES()
        inputs = {name: entry for group in ("required", "optional") for name, entry in groups.get(group, {}).items()}
        return {name: entry[0] for name, entry in inputs.items() if isinstance(entry[0], str)}
    except Exception:  # code of another pack, which may look for files; after an error the node counts as unknown
        return {}


def default_values(node: str) -> dict[str, Any]:
    """Return the values that a new node of an installed type has, as far as its type says."""
    return defaults_of(class_of(node).INPUT_TYPES())


def defaults_of(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of a new node, from what ``INPUT_TYPES`` or ``/object_info`` says of its inputs."""
    entries = {name: entry for group in ("required", "optional") for name, entry in inputs.get(group, {}).items()}
    values = {name: _default(entry) for name, entry in entries.items()}
    return {name: value for name, value in values.items() if value is not None}


def _default(entry: Sequence[Any]) -> Any:
    kind, options = entry[0], entry[1] if len(entry) > 1 else {}
    if "default" in options:
        return options["default"]
    choices = kind if isinstance(kind, list) else options.get("options", [])
    return choices[0] if choices else None


def output_types(node: str) -> tuple[str, ...]:
    """Return the types of the outputs of a type of nodes; empty if it is not installed."""
    return tuple(str(kind) for kind in getattr(class_of(node), "RETURN_TYPES", ()) or ())


def class_of(node: str) -> Any:
    """Return the class of a type of nodes; None if it is not installed."""
    # Looked up, never imported: importing it would load ComfyUI's whole graph of modules.
    return getattr(sys.modules.get("nodes"), "NODE_CLASS_MAPPINGS", {}).get(node)
