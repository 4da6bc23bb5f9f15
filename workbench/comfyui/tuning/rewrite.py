"""Put nodes into a prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..prompt import Prompt, defaults_of, link_of

Described = Callable[[str], Mapping[str, Any]]
"""Returns what ComfyUI's ``/object_info`` says of a type of nodes."""


_DIGITS = 16
"""Ids of more digits are no numbers that ComfyUI has counted."""


@dataclass
class Rewritten:
    """A prompt that is being changed; the one that it began with stays as it was.

    ``describe`` asks for the types of nodes; ``chains`` are the ids of the inserted nodes, by wire.
    """

    prompt: dict[str, dict[str, Any]]
    describe: Described
    chains: list[list[str]] = field(default_factory=list)

    @classmethod
    def of(cls, prompt: Prompt, describe: Described) -> Rewritten:
        return cls({id: {**node, "inputs": dict(node["inputs"])} for id, node in prompt.items()}, describe)

    def convert(self, id: str, to: str, inputs: Mapping[str, Any], old_input: str, new_input: str) -> None:
        """Put a node of ours in the place of another; it keeps the id, so that all links hold."""
        source = self.prompt[id]["inputs"].get(old_input)
        self.prompt[id] = self._made(to, {**inputs, new_input: source})

    def insert(self, wire: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> None:
        name, receivers = wire["name"], wire["receivers"]
        first = receivers[0]
        source = self.prompt[first["node"]]["inputs"][first["input"]]
        chain = []
        for step in steps:
            id = self._new_id()
            self.prompt[id] = self._made(step["node"], {**step["inputs"], name: source})
            source = [id, 0]
            chain.append(id)
        for receiver in receivers:
            self.prompt[receiver["node"]]["inputs"][receiver["input"]] = source
        self.chains.append(chain)

    def _made(self, node: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        about = self.describe(node)
        given = {**defaults_of(about.get("input", {})), **inputs}
        values = {name: value for name, value in given.items() if value is not None}
        return {"class_type": node, "inputs": values, "_meta": {"title": about.get("display_name", node)}}

    def _new_id(self) -> str:
        firsts = [id.split(":")[0] for id in self.prompt]
        numbers = [int(first) for first in firsts if first.isdecimal() and len(first) < _DIGITS]
        return str(max(numbers, default=0) + 1)


def settings_of(node: Mapping[str, Any], step: Mapping[str, Any]) -> str:
    """Return e.g. ``Apply ToMe (preset balanced)``."""
    values = ", ".join(f"{name} {value}" for name, value in step["inputs"].items() if link_of(value) is None)
    return f"{node['_meta']['title']}" + (f" ({values})" if values else "")
