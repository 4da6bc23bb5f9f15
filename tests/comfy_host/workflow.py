"""Turn a saved workflow (nodes, links, widget values) into the prompt that ComfyUI's server executes.

The frontend does this in the browser when "Run" is pressed. The rules here are those that a workflow's author relies
on: which inputs have widgets, in which order their values are saved, and what muted and bypassed nodes mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MUTED, BYPASSED = 2, 4
_GIVEN, _HANDED_OUT = -10, -20
"""Where links of a subgraph begin and end that are its inputs and outputs."""

_VIRTUAL = ("Reroute", "PrimitiveNode", "Note", "MarkdownNote")
_WIDGET_TYPES = ("INT", "FLOAT", "STRING", "BOOLEAN", "COMBO", "COLOR", "PAINTER")
_DYNAMIC_COMBO = "COMFY_DYNAMICCOMBO_V3"
_AFTER_GENERATE = ("fixed", "increment", "decrement", "randomize", "increment-wrap")

Json = dict[str, Any]
Link = tuple[str, int]
"""Where a value comes from: node id and output number."""


class WorkflowError(ValueError):
    """The workflow cannot be converted; the message names the node."""


def to_api(workflow: Json, object_info: Mapping[str, Any]) -> dict[str, Json]:
    """Return the prompt (API format) for a workflow saved in the frontend's format.

    Args:
        workflow: the content of the workflow file.
        object_info: what the server answers to ``/object_info``.

    Raises:
        WorkflowError: if a node type is unknown, or the workflow is not in the frontend's format.
    """
    if not isinstance(workflow.get("nodes"), list):
        raise WorkflowError("This is not a workflow as the frontend saves it: it has no list of nodes.")
    return _Converter(workflow, object_info).prompt()


def with_defaults(object_info: Mapping[str, Any], class_type: str, **inputs: Any) -> Json:
    """Return a node for a prompt: ``inputs``, and the defaults of all other inputs that it requires."""
    required = object_info[class_type]["input"]["required"].items()
    defaults = {name: options[0]["default"] for name, (_, *options) in required if options and "default" in options[0]}
    return {"class_type": class_type, "inputs": {**defaults, **inputs}}


class _Converter:
    def __init__(self, workflow: Json, object_info: Mapping[str, Any]) -> None:
        self.object_info = object_info
        self.subgraphs = {graph["id"]: graph for graph in workflow.get("definitions", {}).get("subgraphs", [])}
        self.nodes: dict[str, Json] = {}
        self.links: dict[str, Link] = {}
        self.given: dict[str, tuple[Json, str]] = {}
        self.handed_out: dict[Link, str] = {}
        self._add(workflow, "")

    def _add(self, graph: Json, prefix: str, outer: Json | None = None) -> None:
        """Take the nodes and links of a graph; ``outer`` is the node that stands for it, whose id is in ``prefix``.

        ``given`` are the links that begin at that node's inputs, ``handed_out`` those that end at its outputs.
        """
        for link in graph.get("links", []):
            # A list in workflows of schema 0.4, an object in those of schema 1.
            number, origin, slot, target, target_slot = (
                [link[key] for key in ("id", "origin_id", "origin_slot", "target_id", "target_slot")]
                if isinstance(link, dict)
                else link[:5]
            )
            key = f"{prefix}{number}"
            if outer is not None and origin == _GIVEN:
                self.given[key] = (outer, graph["inputs"][slot]["name"])
            else:
                self.links[key] = (f"{prefix}{origin}", int(slot))
            if outer is not None and target == _HANDED_OUT:
                self.handed_out[outer["id"], int(target_slot)] = key
        for saved in graph["nodes"]:
            slots = [
                slot if slot.get("link") is None else {**slot, "link": f"{prefix}{slot['link']}"}
                for slot in saved.get("inputs") or []
            ]
            node = self.nodes[f"{prefix}{saved['id']}"] = {**saved, "id": f"{prefix}{saved['id']}", "inputs": slots}
            if node["type"] in self.subgraphs and node.get("mode", 0) not in (MUTED, BYPASSED):
                self._add(self.subgraphs[node["type"]], f"{node['id']}:", node)

    def prompt(self) -> dict[str, Json]:
        return {
            node_id: {
                "class_type": node["type"],
                "inputs": self._inputs(node),
                "_meta": {"title": node.get("title") or self._info(node).get("display_name") or node["type"]},
            }
            for node_id, node in self.nodes.items()
            if node["type"] not in (*_VIRTUAL, *self.subgraphs) and node.get("mode", 0) not in (MUTED, BYPASSED)
        }

    def _info(self, node: Json) -> Json:
        info = self.object_info.get(node["type"])
        if info is None:
            where = f"Node {node['id']} of the workflow has the type {node['type']!r}"
            raise WorkflowError(f"{where}, which this ComfyUI does not know. Is its node pack installed?")
        return info

    def _inputs(self, node: Json) -> Json:
        inputs: Json = dict(self._widgets(node))
        for slot in node.get("inputs") or []:
            if slot.get("link") is None:
                continue
            name = slot.get("widget", {}).get("name") or slot["name"]
            origin = self._origin(slot["link"])
            if isinstance(origin, _Constant):
                inputs[name] = origin.value
            elif origin is not None:
                inputs[name] = list(origin)
            elif "widget" not in slot:
                inputs.pop(name, None)
        return inputs

    def _widgets(self, node: Json) -> Iterator[tuple[str, Any]]:
        """Yield name and value of every widget of a node."""
        saved = node.get("widgets_values") or []
        specs = list(_input_specs(self._info(node)["input"]))
        if isinstance(saved, dict):
            yield from ((name, _literal(saved[name])) for name, _ in specs if name in saved)
            return
        values = list(saved)
        while specs:
            name, spec = specs.pop(0)
            kind, options = _kind_and_options(spec)
            if kind == _DYNAMIC_COMBO:
                chosen = values.pop(0) if values else options["options"][0]["key"]
                yield name, chosen
                # The inputs of the chosen option follow at once, named "combo.input".
                for option in options["options"]:
                    if option["key"] == chosen:
                        specs = [(f"{name}.{sub}", s) for sub, s in _input_specs(option["inputs"])] + specs
                continue
            if kind not in _WIDGET_TYPES or options.get("forceInput"):
                continue
            if values:
                yield name, _literal(values.pop(0))
            elif "default" in options:  # saved before the node had this input
                yield name, options["default"]
            is_seed = kind == "INT" and name.rsplit(".", 1)[-1] in ("seed", "noise_seed")
            if options.get("control_after_generate", is_seed) and values and values[0] in _AFTER_GENERATE:
                values.pop(0)
            if any(option.endswith("_upload") for option in options) and values[:1] in (["image"], ["audio"]):
                values.pop(0)  # the upload button's

    def _origin(self, link: str, depth: int = 0) -> Link | _Constant | None:
        """Follow a link backwards through what the server never sees; None if it leads nowhere."""
        if link in self.given:
            return self._given(*self.given[link], depth)
        if link not in self.links or depth > len(self.links):
            return None
        node_id, slot = self.links[link]
        node = self.nodes.get(node_id)
        if node is None or node.get("mode", 0) == MUTED:
            return None
        if node["type"] == "PrimitiveNode":
            return _Constant(_literal((node.get("widgets_values") or [None])[0]))
        if node["type"] == "Reroute":
            inputs = node.get("inputs") or []
            passed = inputs[0] if inputs else None
        elif node.get("mode", 0) == BYPASSED:
            passed = _bypass(node, slot)
        elif node["type"] in self.subgraphs:
            passed = {"link": self.handed_out.get((node_id, slot))}
        else:
            return node_id, slot
        if passed is None or passed.get("link") is None:
            return None
        return self._origin(passed["link"], depth + 1)

    def _given(self, outer: Json, name: str, depth: int) -> Link | _Constant | None:
        """Return what a subgraph's node is given for an input: a link, or the value that was saved for it."""
        link = next((slot["link"] for slot in outer["inputs"] if slot["name"] == name), None)
        if link is not None:
            return self._origin(link, depth + 1)
        inputs = self.subgraphs[outer["type"]]["inputs"]
        widgets = [entry["name"] for entry in inputs if entry["type"] in _WIDGET_TYPES]
        saved = outer.get("widgets_values") or []
        if name not in widgets:
            return None
        if len(saved) == len(widgets):
            return _Constant(_literal(saved[widgets.index(name)]))
        return self._inside(outer, name)

    def _inside(self, outer: Json, name: str) -> _Constant | None:
        """Return the value of the first widget that an input of a subgraph leads to: the others take it too."""
        for link, given in self.given.items():
            if given != (outer, name):
                continue
            for node in self.nodes.values():
                for slot in node["inputs"]:
                    if slot.get("link") == link and "widget" in slot and node["type"] not in self.subgraphs:
                        return _Constant(dict(self._widgets(node)).get(slot["widget"].get("name") or slot["name"]))
        return None


class _Constant:
    """A value from a PrimitiveNode, in place of a link."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _bypass(node: Json, slot: int) -> Json | None:
    """Return the input that a bypassed node hands on as its output ``slot``: the same place, else the same type."""
    inputs = node.get("inputs") or []
    wanted = node["outputs"][slot]["type"]
    for candidate in [*inputs[slot : slot + 1], *inputs]:
        if candidate["type"] == wanted or "*" in (candidate["type"], wanted):
            return candidate
    return None


def _input_specs(inputs: Json) -> Iterator[tuple[str, Any]]:
    for group in ("required", "optional"):
        yield from (inputs.get(group) or {}).items()


def _kind_and_options(spec: Any) -> tuple[str, Json]:
    options = spec[1] if len(spec) > 1 and isinstance(spec[1], dict) else {}
    if isinstance(spec[0], list):  # the old way to write a combo: the list of its choices
        return "COMBO", options
    return options.get("widgetType") or spec[0], options


def _literal(value: Any) -> Any:
    """Return a widget's value so that the server does not take a list for a link."""
    return {"__value__": value} if isinstance(value, list) else value
