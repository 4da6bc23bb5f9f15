"""What *Make this workflow faster* offers for a workflow on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..optimizers.hosts.comfyui.reporting import Payload
from ..workbench.comfyui.prompt import Prompt, require_prompt
from ..workbench.recipe import Step
from .built_in_presets import BUILT_IN, Machine, built_in_recipe, machine_here
from .foreign import KNOWN, converted_inputs
from .recipes import Nodes, changed_by, shown_steps
from .wires import Wire, find_wires, upstream

ADVICE = "/paceline/advice"

_PRESET = "PacelineOptimizePreset"


def advice_payload(sent: Any, nodes: Nodes) -> Payload:
    """Return the wires of a prompt on which something can be made faster, and for each choice what to do there.

    Raises:
        InvalidSetting: if what was sent is no prompt.
    """
    prompt = require_prompt(sent)
    machine = machine_here()
    wires = [_advised(prompt, wire, machine, nodes) for wire in find_wires(prompt)]
    return {"choices": list(BUILT_IN), "wires": wires}


def advised_steps(name: str, machine: Machine) -> Sequence[Step]:
    """Return the nodes of a built-in preset, Reuse Steps where the picture may change, and ControlNets compiled too."""
    steps = list(built_in_recipe(name, machine, reuse_steps=True).steps)
    if any(step.node == "PacelineCompileUNet" for step in steps):
        steps.append(Step("PacelineCompileControlNet", {}))
    return steps


def _advised(prompt: Prompt, wire: Wire, machine: Machine, nodes: Nodes) -> Payload:
    before = upstream(prompt, wire)
    return {
        "name": wire.name,
        "receivers": [{"node": node, "input": name} for node, name in wire.receivers],
        "plans": {name: _plan(prompt, wire, before, name, machine, nodes) for name in BUILT_IN},
    }


def _plan(prompt: Prompt, wire: Wire, before: Sequence[str], choice: str, machine: Machine, nodes: Nodes) -> Payload:
    types = {node: str(prompt[node]["class_type"]) for node in before}
    if _PRESET in types.values():
        return {"foreign": [], "steps": []}
    foreign = [
        node for node, type in types.items() if type in KNOWN and (choice != "lossless" or KNOWN[type].same_picture)
    ]
    there = {*types.values(), *(KNOWN[types[node]].to for node in foreign)}
    steps = [
        step
        for step in advised_steps(choice, machine)
        if step.node not in there and changed_by(nodes[step.node]) == wire.name
    ]
    return {
        "foreign": [
            {
                "node": node,
                "to": KNOWN[types[node]].to,
                "inputs": converted_inputs(types[node], prompt[node]["inputs"], nodes),
            }
            for node in foreign
        ],
        "steps": shown_steps(steps),
    }
