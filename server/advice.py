"""The offers of *Make this workflow faster* on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isqrt
from typing import Any

from ..optimizers.hosts.comfyui.reporting import Payload
from ..optimizers.step_reuse.samplers import FEWEST_STEPS
from ..optimizers.token_merging.automatic import minimum_tokens
from ..workbench.comfyui.workflow import Workflow
from ..workbench.recipe import Step
from .built_in_presets import BUILT_IN, Machine, built_in_recipe, machine_here
from .foreign import KNOWN, converted_inputs
from .recipes import Nodes, changed_by, shown_steps
from .step_count import steps_behind
from .wires import Wire, find_wires, is_second_model, upstream

ADVICE = "/paceline/advice"


def advice_payload(sent: Any, nodes: Nodes) -> Payload:
    """Return the wires of a prompt on which something can be faster, and what to do there for each choice."""
    workflow = Workflow.read(sent)
    machine = machine_here()
    return {
        "choices": list(BUILT_IN),
        "wires": [_advised(workflow, wire, machine, nodes) for wire in find_wires(workflow)],
    }


def _steps(choice: str, machine: Machine, reuse_steps: bool) -> list[Step]:
    steps = [*built_in_recipe(choice, machine, reuse_steps).steps]
    if any(step.node == "PacelineCompileUNet" for step in steps):
        steps.append(Step("PacelineCompileControlNet"))
    return steps


def _advised(workflow: Workflow, wire: Wire, machine: Machine, nodes: Nodes) -> Payload:
    types = {node: workflow.type(node) for node in upstream(workflow, wire)}
    steps = steps_behind(workflow, wire) if wire.name == "model" else None
    few = steps is not None and steps <= FEWEST_STEPS
    guiders = [workflow.title(node) for node, name in wire.receivers if is_second_model(workflow, node, name)]
    second = len(guiders) == len(wire.receivers)
    reuse = not few and not second
    file = next((value for node in types for value in workflow.inputs(node).values() if _names_int8(value)), "")
    # Each of few steps must be as short as can be. The node times the layers, and leaves out those that gain nothing.
    machine = replace(machine, fast_int8=few and machine.device == "cuda" and not file)
    given = {
        choice: [step for step in _steps(choice, machine, reuse) if changed_by(nodes[step.node]) == wire.name]
        for choice in BUILT_IN
    }
    plans = {choice: _plan(workflow, types, choice, one, nodes, reuse) for choice, one in given.items()}
    least = minimum_tokens(machine.device)
    side = 16 * isqrt(least)  # a token of most models is 16 pixels wide
    merges = any(step["node"] == "PacelineApplyToMe" for plan in plans.values() for step in plan["steps"])
    gpu_merges = merges and machine.device != "cpu"  # on a CPU small pictures have enough too
    notes = [
        f"Reuse Steps is left out: of so few steps ({steps}) each changes the picture too much." if few else "",
        f"Reuse Steps is left out: the first model of {guiders[0]} decides for both." if second and not few else "",
        f"Apply ToMe pays from about {least} tokens on, in most models {side} x {side} pixels." if gpu_merges else "",
        f"Quantize int8 is left out: {file} has int8 weights already, by its name." if file else "",
    ]
    return {
        "name": wire.name,
        "receivers": [{"node": node, "input": name} for node, name in wire.receivers],
        "plans": plans,
        "notes": [note for note in notes if note],
    }


def _names_int8(value: Any) -> bool:
    return isinstance(value, str) and "int8" in value.lower()


def _plan(
    workflow: Workflow, types: Mapping[str, str], choice: str, steps: list[Step], nodes: Nodes, reuse: bool
) -> Payload:
    """Return what to convert and what to insert, where ``types`` are the nodes on the way from the loader."""
    if "PacelineOptimizePreset" in types.values():
        return {"foreign": [], "steps": []}
    foreign = []
    for node, type in types.items():
        known = KNOWN.get(type)
        if not reuse and known is not None and known.to == "PacelineReuseSteps":
            continue
        if known is not None and (choice != "lossless" or known.same_picture):
            inputs = converted_inputs(type, workflow.inputs(node), nodes)
            foreign.append({"node": node, "to": known.to, "inputs": inputs})
    there = {*types.values(), *(one["to"] for one in foreign)}
    return {"foreign": foreign, "steps": shown_steps(step for step in steps if step.node not in there)}
