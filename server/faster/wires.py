"""Where a model goes into a sampler in a workflow, and how it is sampled there, as far as the workflow says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...workbench.comfyui.prompt import Link, input_types
from ...workbench.comfyui.workflow import NUMBERS, Workflow, way_back
from ..recipes import PREFIX

_SAMPLED = {"LATENT", "GUIDER", "IMAGE", "VIDEO", "AUDIO"}
"""What a node gives out that samples with the MODEL it takes, or has it sampled with."""

_SWITCHES = ("ComfySwitchNode", "ComfySoftSwitchNode")
"""ComfyUI's nodes that hand on one of two inputs, of any type."""


@dataclass(frozen=True)
class Wire:
    """An output that gives a MODEL, and the inputs of samplers and guiders that it feeds, as pairs of node and name."""

    origin: Link
    receivers: tuple[tuple[str, str], ...]


def find_wires(workflow: Workflow) -> list[Wire]:
    """Return where models go into samplers; the second model of a guider is none, as the first decides for both."""
    found: dict[Link, list[tuple[str, str]]] = {}
    for id in workflow:
        outputs = {*workflow.gives(id)}
        if workflow.type(id).startswith(PREFIX) or "MODEL" in outputs or not outputs & _SAMPLED:
            continue
        for type, name, origin in workflow.typed_links(id):
            if type == "MODEL" and not _is_second(workflow, id, name):
                found.setdefault(origin, []).append((id, name))
    return [Wire(origin, tuple(receivers)) for origin, receivers in found.items()]


def upstream(workflow: Workflow, wire: Wire) -> list[str]:
    """Return the nodes between a wire and the loader, the last first; of a switch, those of the side that is chosen."""

    def before(id: str) -> str | None:
        if workflow.type(id) in _SWITCHES:
            return _chosen(workflow, id)
        return next((origin for origin, _ in workflow.takes(id, "MODEL")), None)

    return [*way_back(wire.origin[0], before)]


def _is_second(workflow: Workflow, id: str, name: str) -> bool:
    """Return whether an input is for the second model of a guider, which samples with two."""
    declared = input_types(workflow.type(id))
    first = next((one for one, type in declared.items() if type == "MODEL"), name)
    return "GUIDER" in workflow.gives(id) and name != first


def _chosen(workflow: Workflow, switch: str) -> str | None:
    """Return the node whose output a switch hands on; None where that is not known before the run."""
    side = workflow.known(workflow.inputs(switch).get("switch"))
    links = workflow.links(switch)
    sides = [links[name][0] for name in ("on_true", "on_false") if name in links]
    if len(sides) < 2:
        return sides[0] if sides else None
    return None if side is None else sides[not side]


def samplers_on(workflow: Workflow, wire: Wire) -> list[str]:
    """Return the nodes that sample what a wire carries: they take it, or a guider that does."""
    given = {id for id, _ in wire.receivers}
    return [id for id in workflow if id in given or workflow.before(id, "guider") in given]


def steps_on(workflow: Workflow, wire: Wire) -> int | None:
    """Return the most steps of a sampler on a wire; None where that is not known yet."""
    return max((count for id in samplers_on(workflow, wire) for count in _counts(workflow, id)), default=None)


def solver_on(workflow: Workflow, wire: Wire) -> str | None:
    """Return the solver that a wire's samplers name; None where they name none, or several."""
    names: set[Any] = set()
    for id in samplers_on(workflow, wire):
        if "GUIDER" in workflow.gives(id):
            continue
        chooser = workflow.before(id, "sampler") or id
        names.add(workflow.known(workflow.inputs(chooser).get("sampler_name")))
    (name,) = names if len(names) == 1 else (None,)
    return name if isinstance(name, str) else None


def _counts(workflow: Workflow, sampler: str) -> Iterator[int]:
    levels = workflow.known(workflow.inputs(sampler).get("sigmas"), (*NUMBERS, "SIGMAS"))
    if hasattr(levels, "shape"):
        yield max(0, levels.shape[-1] - 1)
        return
    # Noise levels that a model has a part in, or the size of a picture.
    schedule = way_back(workflow.before(sampler, "sigmas"), lambda id: workflow.before(id, "sigmas"))
    for id in (sampler, *schedule):
        steps = workflow.known(workflow.inputs(id).get("steps"))
        if isinstance(steps, (int, float)):
            yield int(steps)
            return


def sampled(workflow: Workflow, wires: list[Wire]) -> list[Link]:
    """Return the LATENTs of the last samplers on some wires: those whose latents no further sampler on them takes."""
    given = [id for wire in wires for id, _ in wire.receivers]
    behind = {*given, *workflow.users(given)}
    samplers = [
        id
        for id in workflow
        if id in behind and "LATENT" in workflow.gives(id) and workflow.takes(id, "MODEL", "GUIDER")
    ]
    last = [id for id in samplers if not workflow.users([id]).keys() & samplers]
    return [(id, workflow.gives(id).index("LATENT")) for id in last]


def decoder_of(workflow: Workflow, latent: Link) -> list[Any] | None:
    """Return the link to the VAE that makes pictures of a latent; None where none does."""
    behind = workflow.users([latent[0]])
    found = (
        [*origin]
        for id in workflow
        if id in behind and "IMAGE" in workflow.gives(id) and workflow.takes(id, "LATENT")
        for origin in workflow.takes(id, "VAE")
    )
    return next(found, None)
