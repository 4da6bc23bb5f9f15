"""What *Make this workflow faster* offers on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..optimizers.hosts.comfyui.reporting import Payload
from ..workbench.comfyui.prompt import Prompt, require_prompt
from ..workbench.recipe import Step
from .built_in_presets import BUILT_IN, Machine, built_in_recipe, machine_here
from .foreign import KNOWN, converted_inputs
from .recipes import Nodes, changed_by, shown_steps
from .wires import Wire, find_wires, upstream

ADVICE = "/paceline/advice"


def advice_payload(sent: Any, nodes: Nodes) -> Payload:
    """Return the wires of a prompt on which something can be faster, and what to do there for each choice."""
    prompt = require_prompt(sent)
    steps = {choice: _steps(choice, machine_here()) for choice in BUILT_IN}
    return {"choices": list(BUILT_IN), "wires": [_advised(prompt, wire, steps, nodes) for wire in find_wires(prompt)]}


def _steps(choice: str, machine: Machine) -> list[Step]:
    steps = [*built_in_recipe(choice, machine, reuse_steps=True).steps]
    if any(step.node == "PacelineCompileUNet" for step in steps):
        steps.append(Step("PacelineCompileControlNet"))
    return steps


def _advised(prompt: Prompt, wire: Wire, steps: Mapping[str, list[Step]], nodes: Nodes) -> Payload:
    types = {node: str(prompt[node]["class_type"]) for node in upstream(prompt, wire)}
    of_wire = {
        choice: [step for step in given if changed_by(nodes[step.node]) == wire.name] for choice, given in steps.items()
    }
    return {
        "name": wire.name,
        "receivers": [{"node": node, "input": name} for node, name in wire.receivers],
        "plans": {choice: _plan(prompt, types, choice, given, nodes) for choice, given in of_wire.items()},
    }


def _plan(prompt: Prompt, types: Mapping[str, str], choice: str, steps: list[Step], nodes: Nodes) -> Payload:
    """Return what to convert and what to insert, where ``types`` are the nodes on the way from the loader."""
    if "PacelineOptimizePreset" in types.values():
        return {"foreign": [], "steps": []}
    foreign = []
    for node, type in types.items():
        known = KNOWN.get(type)
        if known is not None and (choice != "lossless" or known.same_picture):
            inputs = converted_inputs(type, prompt[node]["inputs"], nodes)
            foreign.append({"node": node, "to": known.to, "inputs": inputs})
    there = {*types.values(), *(one["to"] for one in foreign)}
    return {"foreign": foreign, "steps": shown_steps(step for step in steps if step.node not in there)}
