"""Where something can be made faster in a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..workbench.comfyui.prompt import Link, input_types
from ..workbench.comfyui.workflow import Workflow, way_back
from .recipes import PREFIX

_SAMPLED = {"LATENT", "GUIDER", "IMAGE", "VIDEO", "AUDIO"}
_CODED = {"IMAGE", "LATENT", "VIDEO"}
_KINDS = {"MODEL": ("model", _SAMPLED), "VAE": ("vae", _CODED), "CONTROL_NET": ("control_net", {"CONDITIONING"})}
"""By the type of a link: the name of our nodes' inputs, and what a node gives out that uses it.

Nodes that only make sound are not among them: no VAE of sound can be compiled.
"""

_NAMES = {name: type for type, (ours, _) in _KINDS.items() for name in (ours, ours.replace("_", ""))}
"""Types by the names of inputs, for nodes that are not installed."""

_SWITCHES = ("ComfySwitchNode", "ComfySoftSwitchNode")
"""ComfyUI's nodes that hand on one of two inputs, of any type."""


@dataclass
class Wire:
    """An output, and the inputs that it feeds, before which nodes can be inserted.

    ``name`` is an input of our nodes, ``model``, ``vae`` or ``control_net``; ``receivers`` are pairs of node and input.
    """

    name: str
    origin: Link
    receivers: list[tuple[str, str]] = field(default_factory=list)


def is_ours(node: Mapping[str, Any]) -> bool:
    """Return whether a node is one of this pack."""
    return str(node["class_type"]).startswith(PREFIX)


def find_wires(workflow: Workflow) -> list[Wire]:
    """Return the wires on which something can be made faster: a MODEL into a sampler, a VAE into what decodes, ..."""
    wires: dict[tuple[str, Link], Wire] = {}
    for id, node in workflow.items():
        outputs = set(workflow.gives(id))
        if is_ours(node):
            continue
        for type, name, origin in workflow.typed_links(id, _NAMES):
            if type in _KINDS and type not in outputs and outputs & _KINDS[type][1]:
                wire = wires.setdefault((type, origin), Wire(_KINDS[type][0], origin))
                wire.receivers.append((id, name))
    return list(wires.values())


def upstream(workflow: Workflow, wire: Wire) -> list[str]:
    """Return the nodes between a wire and the loader, the last first; of a switch, those of the side that is chosen."""
    wanted = next(type for type, (name, _) in _KINDS.items() if name == wire.name)

    def before(id: str) -> str | None:
        if workflow.type(id) in _SWITCHES:
            return _chosen(workflow, id)
        links = workflow.typed_links(id, _NAMES)
        return next((origin for type, _, (origin, _) in links if type == wanted), None)

    return [*way_back(wire.origin[0], before)]


def is_second_model(workflow: Workflow, node: str, name: str) -> bool:
    """Return whether an input is for the second model of a guider, which samples with two."""
    declared = input_types(workflow.type(node))
    first = next((one for one, type in declared.items() if type == "MODEL"), name)
    return "GUIDER" in workflow.gives(node) and name != first


def _chosen(workflow: Workflow, switch: str) -> str | None:
    """Return the node whose output a switch hands on; None where that is not known before the run."""
    side = workflow.known(workflow.inputs(switch).get("switch"))
    links = workflow.links(switch)
    sides = [links[name][0] for name in ("on_true", "on_false") if name in links]
    if len(sides) < 2:
        return sides[0] if sides else None
    return None if side is None else sides[not side]
