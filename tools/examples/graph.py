"""Write a workflow as the frontend saves it, from nodes with named inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

WIDGETS = ("INT", "FLOAT", "STRING", "BOOLEAN", "COMBO")

# Sizes as both renderers draw them: nothing may overlap. The canvas shows the advanced inputs too, in less height each.
TITLE, SLOT, WIDGET, ADVANCED, TEXT_AREA, BADGE = 40, 22, 30, 24, 140, 30
GAP_X, GAP_Y = 80, 70


class Output(NamedTuple):
    """One output of a node in the graph."""

    node: int
    slot: int
    kind: str


class Node:
    """A node that was put into a graph; ``node["MODEL"]`` or ``node[0]`` is an output."""

    def __init__(self, number: int, outputs: list[dict[str, Any]]) -> None:
        self.number = number
        self._outputs = outputs

    def __getitem__(self, wanted: str | int) -> Output:
        names = [output["name"] for output in self._outputs]
        slot = wanted if isinstance(wanted, int) else names.index(wanted)
        return Output(self.number, slot, self._outputs[slot]["type"])


class Graph:
    """A workflow under construction, laid out in columns from left to right.

    Args:
        object_info: what ComfyUI's server answers to ``/object_info``.
    """

    def __init__(self, object_info: Mapping[str, Any]) -> None:
        self._info = object_info
        self._nodes: list[dict[str, Any]] = []
        self._links: list[list[Any]] = []
        self._x = 0.0
        self._y = 0.0
        self._width = 0.0

    def column(self) -> None:
        """Go on at the top of the next column."""
        self._x += self._width + GAP_X
        self._y = self._width = 0.0

    def note(self, text: str, width: int = 420, height: int = 460) -> None:
        """Add a note."""
        self._place({"type": "MarkdownNote", "inputs": [], "outputs": [], "widgets_values": [text]}, width, height)
        self._nodes[-1] |= {"color": "#432", "bgcolor": "#653"}

    def add(
        self,
        kind: str,
        *,
        title: str = "",
        colour: tuple[str, str] | None = None,
        wide: int = 330,
        taller: int = 0,
        models: list[dict[str, str]] | None = None,
        **inputs: Any,
    ) -> Node:
        """Add a node.

        Args:
            kind: its class.
            title: shown in place of the node's own name.
            colour: of title and body.
            wide: width in pixels; `width` is an input of some nodes.
            taller: extra height, for pictures and texts that appear after a run.
            models: files it loads, with the addresses that the frontend offers where they are missing.
            inputs: outputs of other nodes, and values of widgets that differ from the default.
        """
        info = self._info[kind]
        number = len(self._nodes) + 1
        slots: list[dict[str, Any]] = []
        values: list[Any] = []
        height = TITLE + BADGE
        for name, spec in _specs(info):
            options = spec[1] if len(spec) > 1 else {}
            kinds = "COMBO" if isinstance(spec[0], list) else spec[0]
            given = inputs.pop(name, None)
            if kinds not in WIDGETS:
                slots.append({"name": name, "type": kinds, "link": self._link(given, number, len(slots))})
                continue
            choices = spec[0] if isinstance(spec[0], list) else options.get("options") or [""]
            values.append(given if given is not None else options.get("default", choices[0]))
            height += TEXT_AREA if options.get("multiline") else ADVANCED if options.get("advanced") else WIDGET
            if options.get("control_after_generate", kinds == "INT" and name in ("seed", "noise_seed")):
                values.append("fixed")
                height += WIDGET
            if options.get("image_upload"):
                values.append("image")
                height += 300
        if inputs:
            raise ValueError(f"{kind} has no input {', '.join(inputs)}.")
        outputs = [
            {"name": name, "type": kinds, "links": []}
            for name, kinds in zip(info["output_name"], info["output"], strict=True)
        ]
        properties: dict[str, Any] = {"Node name for S&R": kind}
        if models:
            properties["models"] = models
        node = {"type": kind, "inputs": slots, "outputs": outputs, "widgets_values": values, "properties": properties}
        if title:
            node["title"] = title
        if colour:
            node["color"], node["bgcolor"] = colour
        self._place(node, wide, height + SLOT * max(len(slots), len(outputs)) + taller)
        return Node(number, outputs)

    def _link(self, given: Any, target: int, slot: int) -> int | None:
        if given is None:
            return None
        number = len(self._links) + 1
        self._links.append([number, given.node, given.slot, target, slot, given.kind])
        self._nodes[given.node - 1]["outputs"][given.slot]["links"].append(number)
        return number

    def _place(self, node: dict[str, Any], width: float, height: float) -> None:
        number = len(self._nodes) + 1
        place = {"pos": [self._x, self._y], "size": [width, height], "flags": {}, "order": number - 1, "mode": 0}
        self._nodes.append({"id": number, **place, **node})
        self._y += height + GAP_Y
        self._width = max(self._width, width)

    def workflow(self) -> dict[str, Any]:
        """Return what the frontend would save."""
        return {
            "revision": 0,
            "last_node_id": len(self._nodes),
            "last_link_id": len(self._links),
            "nodes": self._nodes,
            "links": self._links,
            "groups": [],
            "config": {},
            "extra": {"ds": {"scale": 0.6, "offset": [60, 120]}},
            "version": 0.4,
        }


def _specs(info: Mapping[str, Any]) -> list[tuple[str, Any]]:
    groups = (info["input"].get(group) or {} for group in ("required", "optional"))
    return [entry for group in groups for entry in group.items()]
