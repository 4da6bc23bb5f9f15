"""What *Make this workflow faster* offers on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from ..optimizers.hosts.comfyui.reporting import Payload
from ..optimizers.step_reuse.settings import BUDGETS
from ..workbench.recipe import Step
from .built_in_presets import BUILT_IN, Machine, built_in_recipe, machine_here
from .optimize_preset import shown_steps

ADVICE = "/paceline/advice"


def advice_payload() -> Payload:
    """Return for each choice what would be inserted here, in order."""
    machine = machine_here()
    choices = [{"name": name, "steps": shown_steps(advised_steps(name, machine))} for name in BUILT_IN]
    return {"choices": choices}


def advised_steps(name: str, machine: Machine) -> Sequence[Step]:
    """Return the nodes of a built-in preset, and Reuse Steps where the picture may change."""
    steps = list(built_in_recipe(name, machine).steps)
    if name != "lossless" and not any(step.node == "PacelineReuseSteps" for step in steps):
        steps.append(Step("PacelineReuseSteps", {"budget": BUDGETS[name]}))
    return steps
