"""When two prompts do the same work, and where: seeds and texts change the picture, and not how long it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from ...optimizers.core.devices import device_name, processor_name
from ...optimizers.core.files import fingerprint_of
from ..comfyui.machine import host_device, host_version, loaded_families
from ..recipe import PREFIX
from .workflow import Workflow, reached

_FREE = re.compile(r"seed|^text|prompt|filename|control_after")
"""Inputs that change from run to run, and not what it takes."""

_FREE_OF_STEPS = re.compile(_FREE.pattern + r"|^steps$|start_at|end_at|denoise|noise")
"""Inputs that do not change how long one step takes."""

_OURS = re.compile(f"_?{PREFIX}")

_PICTURES = re.compile(r"latent|samples|image|pixels|mask|vae")
"""Begin the names of inputs that a step's time does not depend on: what was drawn before, and how it is encoded."""

_PLAIN = "PacelineRemoveOptimizations"
"""Gives back a model without any of our nodes."""


def workflow_key(workflow: Workflow) -> str:
    """Return the key of a workflow with any seed and text."""
    return fingerprint_of(lasting_nodes(workflow))[:16]


def lasting_nodes(workflow: Workflow) -> dict[str, Any]:
    """Return type and inputs of each node, without those that change from run to run."""
    return {id: [workflow.type(id), _lasting(workflow, id, _FREE)] for id in workflow}


def made_of(workflow: Workflow, id: str) -> str:
    """Return the key of all that a node is made of, its own inputs included, whatever the ids of the nodes."""
    return _digest(workflow, id, None)


def sampled_by(workflow: Workflow, sampler: str) -> str:
    """Return the key of a sampler's work, by which steps take as long: without our nodes, seeds, texts."""
    return _digest(workflow, sampler, _FREE_OF_STEPS)


def techniques_before(workflow: Workflow, sampler: str) -> int:
    """Return how many of our nodes change how long a sampler's steps take."""

    def before(id: str) -> Iterator[str]:
        if workflow.type(id) != _PLAIN:
            yield from (origin for name, (origin, _) in workflow.links[id].items() if not _PICTURES.match(name))

    types = map(workflow.type, reached([sampler], before))
    return sum(type.startswith(PREFIX) and type != _PLAIN for type in types)


def facts_here() -> dict[str, str]:
    """Return versions and device, by their names."""
    device = host_device()
    name = processor_name() if device.type == "cpu" else device_name(device)
    return {"ComfyUI": host_version(), "torch": torch.__version__, "device": name}


def about(workflow: Workflow) -> dict[str, str]:
    """Return the key of a workflow's pictures, when its models are loaded, and with which of our nodes."""
    sizes = {name: value for id in workflow for name, value in workflow.inputs(id).items() if isinstance(value, int)}
    ours = {workflow.declared(id).title for id in workflow if workflow.type(id).startswith(PREFIX)}
    found = {
        "family": ", ".join(loaded_families()),
        "solver": ", ".join(filter(None, (link.solver for link in workflow.model_links))),
        "steps": ", ".join(str(link.steps) for link in workflow.model_links if link.steps is not None),
        "size": " x ".join(str(sizes[name]) for name in ("width", "height", "length") if name in sizes),
        "nodes": ", ".join(sorted(ours)),
    }
    return {name: value[:200] for name, value in found.items() if value}


def _digest(workflow: Workflow, id: str, free: re.Pattern[str] | None) -> str:
    """Return the key of a node's outputs; where inputs are ``free``, our nodes are passed over too."""
    known: dict[tuple[str, int], str] = {}

    def of(id: str, output: int) -> str:
        if (id, output) not in known:
            known[id, output] = ""  # a workflow that goes in a circle has no end
            links, type = workflow.links[id], workflow.type(id)
            if free is not None and _OURS.match(type):
                through = next(iter(links.values()), None)
                known[id, output] = "" if through is None else of(*through)
            else:
                values = _lasting(workflow, id, free) | {name: of(*link) for name, link in links.items()}
                known[id, output] = fingerprint_of([type, output, values])[:16]
        return known[id, output]

    return of(id, 0)


def _lasting(workflow: Workflow, id: str, free: re.Pattern[str] | None) -> dict[str, Any]:
    inputs = workflow.inputs(id).items()
    lasting = [pair for pair in inputs if isinstance(pair[1], list) or not (free and free.search(pair[0]))]
    return {name: _number(value) for name, value in lasting}


def _number(value: Any) -> Any:
    """Return 3.0 as 3: ComfyUI makes the page's numbers fit the types of inputs before it runs them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
