"""A workflow in the form in which ComfyUI runs it (its "API format"), and what can be asked of it before a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from ...core.errors import InvalidSetting
from .prompt import Link, Prompt, class_of, input_types, link_of, output_types

NUMBERS = ("INT", "FLOAT", "BOOLEAN", "COMFY_MATCHTYPE_V3")
"""Types of outputs of nodes that only compute or choose, without files and models; the last is a switch's."""

_NAMES = {"model": "MODEL"}
"""Types by the names of inputs, for nodes that are not installed."""

_MOST_NODES = 3000
"""Looking at a workflow takes time that grows with the square of its nodes, and nothing can cancel it."""

_TITLE = 100
"""Characters of a title that are shown."""


class Workflow(Mapping[str, Mapping[str, Any]]):
    """Nodes by execution id: ``{"4": {"class_type": ..., "inputs": {"model": ["3", 0], "steps": 20}}}``.

    It never changes: what changes it returns another.
    """

    def __init__(self, nodes: Prompt) -> None:
        self._nodes = nodes

    @classmethod
    def read(cls, sent: Any) -> Workflow:
        """Return what was given as a workflow; `InvalidSetting` if it is none."""
        if not isinstance(sent, dict) or not all(
            isinstance(node, dict)
            and isinstance(node.get("class_type"), str)
            and isinstance(node.get("inputs", {}), dict)
            for node in sent.values()
        ):
            remedy = "Save it in ComfyUI with File > Export (API). It has class_type and inputs of each node."
            raise InvalidSetting("This is no workflow in the API format.", remedy)
        if len(sent) > _MOST_NODES:
            raise InvalidSetting(f"This workflow has {len(sent)} nodes.", f"At most {_MOST_NODES} are looked at.")
        return cls({str(id): {**node, "inputs": node.get("inputs", {})} for id, node in sent.items()})

    def __getitem__(self, id: str) -> Mapping[str, Any]:
        return self._nodes[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def type(self, id: str) -> str:
        return str(self[id]["class_type"])

    def inputs(self, id: str) -> Mapping[str, Any]:
        """Return the values of a node's inputs, and the links to where they come from."""
        inputs: Mapping[str, Any] = self[id]["inputs"]
        return inputs

    def title(self, id: str) -> str:
        """Return a node's title in one line, without characters that a terminal would take for a command."""
        about = self[id].get("_meta")
        title = about.get("title") if isinstance(about, Mapping) else None
        return "".join(char for char in str(title or self.type(id)) if char.isprintable())[:_TITLE]

    def links(self, id: str) -> dict[str, Link]:
        """Return where a node's inputs come from, by their names, as far as other nodes of the workflow give them."""
        links = {name: link_of(value) for name, value in self.inputs(id).items()}
        return {name: link for name, link in links.items() if link is not None and link[0] in self}

    def gives(self, id: str) -> tuple[str, ...]:
        """Return the types of a node's outputs."""
        return output_types(self.type(id))

    def typed_links(self, id: str) -> Iterator[tuple[str, str, Link]]:
        """Yield type, name and origin of each input that another node gives."""
        declared = input_types(self.type(id))
        for name, (origin, slot) in self.links(id).items():
            outputs = self.gives(origin)
            given = outputs[slot] if 0 <= slot < len(outputs) else ""
            yield declared.get(name) or given or _NAMES.get(name, ""), name, (origin, slot)

    def takes(self, id: str, *types: str) -> list[Link]:
        """Return where a node's inputs of some types come from."""
        return [origin for type, _, origin in self.typed_links(id) if type in types]

    def before(self, id: str, *names: str) -> str | None:
        """Return the node that an input comes from; of several names, the first input that comes from one."""
        links = self.links(id)
        return next((links[name][0] for name in names if name in links), None)

    def needed(self, id: str) -> dict[str, None]:
        """Return a node and those that it needs, directly or through others."""
        return {id: None} | reached([id], lambda one: (origin for origin, _ in self.links(one).values()))

    def users(self, ids: Iterable[str]) -> dict[str, None]:
        """Return the nodes that use what some nodes give, also through others."""
        return reached(ids, lambda id: self._used_by.get(id, ()))

    @cached_property
    def _used_by(self) -> Mapping[str, Sequence[str]]:
        users: dict[str, list[str]] = {}
        for id in self:
            for origin, _ in self.links(id).values():
                users.setdefault(origin, []).append(id)
        return users

    def known(self, value: Any, types: Collection[str] = NUMBERS) -> Any:
        """Return a value before the run, also one that nodes make which give nothing but these types; else None."""
        link = link_of(value)
        if link is None:
            return value
        if link[0] not in self:
            return None
        made_by = self.needed(link[0])
        if any(not (given := self.gives(id)) or not {*given} <= {*types} for id in made_by):
            return None
        try:
            return _value_of(self, link)
        except Exception:  # of other people's code, as a workflow can be unfinished; the run will say what is wrong
            return None

    def edited(self, edits: Mapping[tuple[str, str], Any]) -> Workflow:
        """Return it with other values of single inputs, by node and name."""
        nodes = {id: {**node, "inputs": {**node["inputs"]}} for id, node in self.items()}
        for (id, name), value in edits.items():
            nodes[id]["inputs"][name] = value
        return Workflow(nodes)

    def copy(self, names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return copies of some nodes under new ids; what they use of the others stays where it is."""

        def moved(value: Any) -> Any:
            link = link_of(value)
            return value if link is None or link[0] not in names else [names[link[0]], link[1]]

        copies = {}
        for id, new in names.items():
            inputs = {name: moved(value) for name, value in self.inputs(id).items()}
            copies[new] = {**self[id], "inputs": inputs}
        return copies


def way_back(id: str | None, before: Callable[[str], str | None]) -> Iterator[str]:
    """Yield a node, its source, the source's source, and so on; ends at the first node that was seen before."""
    seen: set[str] = set()
    while id is not None and id not in seen:
        seen.add(id)
        yield id
        id = before(id)


def reached(ids: Iterable[str], following: Callable[[str], Iterable[str]]) -> dict[str, None]:
    """Return the nodes that follow after some, and after these, in the order in which they are found."""
    found: dict[str, None] = {}
    left = [*ids]
    while left:
        new = [id for id in following(left.pop()) if id not in found]
        found |= dict.fromkeys(new)
        left += new
    return found


def _value_of(nodes: Prompt, link: Link) -> Any:
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
