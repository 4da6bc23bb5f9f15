"""A workflow in the form in which ComfyUI runs it (its "API format"), and what can be asked of it before a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any

from ...optimizers.core.errors import InvalidSetting
from ..recipe import PREFIX
from .node_types import Link, NodeType, node_type, outputs_of

NUMBERS = ("INT", "FLOAT", "BOOLEAN", "COMFY_MATCHTYPE_V3")
"""Types of outputs of nodes that only compute or choose, without files and models; the last is a switch's."""

_NAMES = {"model": "MODEL"}
"""Types by the names of inputs, for nodes that are not installed."""

_MOST_NODES = 3000
"""Looking at a workflow takes time that grows with the square of its nodes, and nothing can cancel it."""

_TITLE = 100
"""Characters of a title that are shown."""

_SAMPLED = {"LATENT", "GUIDER", "IMAGE", "VIDEO", "AUDIO"}
"""What a node gives out that samples with the MODEL it takes, or has it sampled with."""

_SWITCHES = ("ComfySwitchNode", "ComfySoftSwitchNode")
"""ComfyUI's nodes that hand on one of two inputs, of any type."""


class Workflow(dict[str, Mapping[str, Any]]):
    """Nodes by execution id: ``{"4": {"class_type": ..., "inputs": {"model": ["3", 0], "steps": 20}}}``.

    It never changes: what changes it returns another.
    """

    @classmethod
    def read(cls, sent: Any) -> Workflow:
        """Return the workflow of a request; `InvalidSetting` if it is none."""
        if not isinstance(sent, dict) or not all(
            isinstance(node, dict)
            and isinstance(node.get("class_type"), str)
            and isinstance(node.get("inputs", {}), dict)
            for node in sent.values()
        ):
            remedy = "Save it in ComfyUI with File > Export (API). It has class_type and inputs of each node."
            raise InvalidSetting("This is no workflow in the API format.", remedy)
        if len(sent) > _MOST_NODES:
            raise InvalidSetting(f"This workflow has {len(sent)} nodes.", f"At most {_MOST_NODES} are read.")
        return cls({str(id): {**node, "inputs": node.get("inputs", {})} for id, node in sent.items()})

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

    def declared(self, id: str) -> NodeType:
        """Return ComfyUI's facts about a node's type."""
        return self._types[self.type(id)]

    def gives(self, id: str) -> tuple[str, ...]:
        """Return the types of a node's outputs."""
        return self.declared(id).outputs

    def typed_links(self, id: str) -> Iterator[tuple[str, str, Link]]:
        """Yield type, name and origin of each input that another node gives."""
        declared = self.declared(id).inputs
        for name, (origin, slot) in self.links[id].items():
            outputs = self.gives(origin)
            given = outputs[slot] if 0 <= slot < len(outputs) else ""
            yield declared.get(name) or given or _NAMES.get(name, ""), name, (origin, slot)

    def takes(self, id: str, *types: str) -> list[Link]:
        """Return where a node's inputs of some types come from."""
        return [origin for type, _, origin in self.typed_links(id) if type in types]

    def before(self, id: str, *names: str) -> str | None:
        """Return the node that an input comes from; of several names, the first input that comes from one."""
        links = self.links[id]
        return next((links[name][0] for name in names if name in links), None)

    def needed(self, id: str) -> dict[str, None]:
        """Return a node and those that it needs, directly or through others."""
        return {id: None} | reached([id], lambda one: (origin for origin, _ in self.links[one].values()))

    def users(self, ids: Iterable[str]) -> dict[str, None]:
        """Return the nodes that use what some nodes give, also through others."""
        return reached(ids, lambda id: self._used_by.get(id, ()))

    @cached_property
    def links(self) -> Mapping[str, Mapping[str, Link]]:
        """Where the inputs of nodes come from, by their names, as far as other nodes of the workflow give them."""
        every = {id: {name: link_of(value) for name, value in self.inputs(id).items()} for id in self}
        return {
            id: {name: link for name, link in links.items() if link is not None and link[0] in self}
            for id, links in every.items()
        }

    @cached_property
    def _types(self) -> Mapping[str, NodeType]:
        """What each type of node declares, asked once: its class may look for files."""
        return {type: node_type(type) for type in {self.type(id) for id in self}}

    @cached_property
    def _used_by(self) -> Mapping[str, Sequence[str]]:
        users: dict[str, list[str]] = {}
        for id in self:
            for origin, _ in self.links[id].values():
                users.setdefault(origin, []).append(id)
        return users

    @cached_property
    def model_links(self) -> list[ModelLink]:
        """Where models go into samplers."""
        samplers = [id for id in self if "MODEL" not in self.gives(id) and not _SAMPLED.isdisjoint(self.gives(id))]
        return [_model_link(self, *fed) for fed in self._feeding("MODEL", samplers)]

    @cached_property
    def vae_links(self) -> list[ModelLink]:
        """Where VAEs decode latents to pictures."""
        decoders = [id for id in self if "IMAGE" in self.gives(id) and self.takes(id, "LATENT")]
        return [_vae_link(self, *fed) for fed in self._feeding("VAE", decoders)]

    def _feeding(self, type: str, ids: Iterable[str]) -> Iterable[tuple[Link, list[tuple[str, str]]]]:
        """Return outputs of a type, each with the inputs of some nodes that it feeds: of guiders their first alone.

        That decides for both. Nodes of ours do not count.
        """
        found: dict[Link, list[tuple[str, str]]] = {}
        for id in ids:
            names = (name for name, declared in self.declared(id).inputs.items() if declared == type)
            first = next(names, None) if "GUIDER" in self.gives(id) else None
            for given, name, origin in self.typed_links(id):
                if given == type and first in (None, name) and not self.type(id).startswith(PREFIX):
                    found.setdefault(origin, []).append((id, name))
        return found.items()

    def known(self, value: Any, types: Collection[str] = NUMBERS) -> Any:
        """Return a value before the run, also one that nodes make which give nothing but these types; else None."""
        link = link_of(value)
        if link is None:
            return value
        if link[0] not in self:
            return None
        made_by = {id: {origin for origin, _ in self.links[id].values()} for id in self.needed(link[0])}
        if any(not (given := self.gives(id)) or not {*given} <= {*types} for id in made_by):
            return None
        try:
            return outputs_of(self, TopologicalSorter(made_by).static_order())[link[0]][link[1]][0]
        except Exception:  # of other people's code, as a workflow can be unfinished; the run will say what is wrong
            return None

    def edited(self, edits: Mapping[tuple[str, str], Any]) -> Workflow:
        """Return it with other values of single inputs, by node and name."""
        nodes = {id: {**node, "inputs": {**node["inputs"]}} for id, node in self.items()}
        for (id, name), value in edits.items():
            nodes[id]["inputs"][name] = value
        return Workflow(nodes)

    def copied(self, names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
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


def link_of(value: Any) -> Link | None:
    """Return where an input's value comes from; None for a value of its own."""
    # Imported here: the command that only asks a server has no ComfyUI.
    from comfy_execution.graph_utils import is_link

    return (value[0], int(value[1])) if is_link(value) else None


@dataclass(frozen=True)
class ModelLink:
    """An output that gives a MODEL or a VAE, and the inputs that it feeds: pairs of node and name.

    Attributes:
        input: what nodes that change it call it: ``model`` or ``vae``.
        upstream: nodes from the output back to the loader; of a switch, those of the side that is chosen.
        samplers: the nodes that sample what it gives.
        steps: the most of a sampler behind it; None where that is not known before a run.
        solver: that its samplers name; None where they name none, or several.
    """

    input: str
    origin: Link
    receivers: tuple[tuple[str, str], ...]
    upstream: tuple[str, ...] = ()
    samplers: tuple[str, ...] = ()
    steps: int | None = None
    solver: str | None = None


def is_switch(workflow: Workflow, id: str) -> bool:
    """Return whether a node hands on one of two inputs."""
    return workflow.type(id) in _SWITCHES


def _model_link(workflow: Workflow, origin: Link, receivers: Sequence[tuple[str, str]]) -> ModelLink:
    given = {id for id, _ in receivers}
    samplers = [id for id in workflow if id in given or workflow.before(id, "guider") in given]
    steps = max((count for id in samplers for count in _counts(workflow, id)), default=None)
    names = {_solver(workflow, id) for id in samplers if "GUIDER" not in workflow.gives(id)}
    (solver,) = names if len(names) == 1 else (None,)
    upstream = way_back(origin[0], lambda id: _model_before(workflow, id))
    return ModelLink("model", origin, tuple(receivers), tuple(upstream), tuple(samplers), steps, solver)


def _vae_link(workflow: Workflow, origin: Link, receivers: Sequence[tuple[str, str]]) -> ModelLink:
    upstream = way_back(origin[0], lambda id: next((one for one, _ in workflow.takes(id, "VAE")), None))
    return ModelLink("vae", origin, tuple(receivers), tuple(upstream))


def _model_before(workflow: Workflow, id: str) -> str | None:
    """Return the node that gives a node its MODEL; None where a switch chooses it while the workflow runs."""
    if not is_switch(workflow, id):
        return next((origin for origin, _ in workflow.takes(id, "MODEL")), None)
    side = workflow.known(workflow.inputs(id).get("switch"))
    links = workflow.links[id]
    sides = [links[name][0] for name in ("on_true", "on_false") if name in links]
    if len(sides) < 2:
        return sides[0] if sides else None
    return None if side is None else sides[not side]


def _solver(workflow: Workflow, sampler: str) -> str | None:
    chooser = workflow.before(sampler, "sampler") or sampler
    name = workflow.known(workflow.inputs(chooser).get("sampler_name"))
    return name if isinstance(name, str) else None


def _counts(workflow: Workflow, sampler: str) -> Iterator[int]:
    levels = workflow.known(workflow.inputs(sampler).get("sigmas"), (*NUMBERS, "SIGMAS"))
    if hasattr(levels, "shape"):
        yield max(0, levels.shape[-1] - 1)
        return
    # Noise levels that a model has a part in, or the size of a picture.
    schedule = way_back(workflow.before(sampler, "sigmas"), lambda id: workflow.before(id, "sigmas"))
    for id in (sampler, *schedule):
        inputs = workflow.inputs(id)
        steps, start, end = (workflow.known(inputs.get(name)) for name in ("steps", "start_at_step", "end_at_step"))
        if isinstance(steps, (int, float)):
            end = min(end, steps) if isinstance(end, int) else steps
            yield max(0, int(end) - (start if isinstance(start, int) else 0))
            return
