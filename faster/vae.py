"""What can make decoding faster: where VAEs decode in a workflow, what is tried there, and what of it is offered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import ClassVar

import torch

from ..core.choices import CHOICES
from ..optimizers.precision.settings import processor_dtype
from ..recipes.apply import Nodes, changed_by
from ..recipes.presets import Machine, built_in_recipe, machine_here
from ..workbench.comfyui.decoding import ProbedVAE
from ..workbench.expectation.expect import Probed, Range, pays_from
from ..workbench.recipe import PREFIX, Step
from .node_types import Link
from .workflow import Workflow, way_back

_PRECISION = "PacelineVAEPrecision"


@dataclass(frozen=True)
class VAELink:
    """An output that gives a VAE, and the inputs of the nodes that decode with it, as pairs of node and name."""

    input: ClassVar[str] = "vae"

    origin: Link
    receivers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class VAEPlan:
    """What is tried on a VAE link: each node by the title under which it is probed."""

    link: VAELink
    tries: dict[str, Step]


def make_vae_plans(workflow: Workflow, choice: str, nodes: Nodes) -> list[VAEPlan]:
    """Return what is tried on each VAE link of a workflow on which anything is."""
    found: dict[Link, list[tuple[str, str]]] = {}
    for id in workflow:
        if (
            workflow.type(id).startswith(PREFIX)
            or "IMAGE" not in workflow.gives(id)
            or not workflow.takes(id, "LATENT")
        ):
            continue
        for type, name, origin in workflow.typed_links(id):
            if type == "VAE":
                found.setdefault(origin, []).append((id, name))
    plans = [
        VAEPlan(VAELink(origin, tuple(receivers)), _tries(workflow, origin, choice, machine_here(), nodes))
        for origin, receivers in found.items()
    ]
    return [plan for plan in plans if plan.tries]


def _tries(workflow: Workflow, origin: Link, choice: str, machine: Machine, nodes: Nodes) -> dict[str, Step]:
    way = way_back(origin[0], lambda id: next((one for one, _ in workflow.takes(id, "VAE")), None))
    there = {workflow.type(id) for id in way}
    if "PacelineOptimizePreset" in there:
        return {}  # it applies what would be inserted
    dtype = _short_dtype(machine)
    steps = [
        *([Step(_PRECISION, {"dtype": dtype})] if dtype else []),
        *(step for step in built_in_recipe(choice, machine).steps if changed_by(nodes[step.node]) == "vae"),
    ]
    return {str(nodes[step.node].define_schema().display_name): step for step in steps if step.node not in there}


def _short_dtype(machine: Machine) -> str:
    """Return the short numbers that suit a machine; empty where none do."""
    if machine.device == "cpu":
        return "" if processor_dtype() == torch.float32 else "auto"
    if machine.device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "fp16"
    return "bf16"


@dataclass(frozen=True)
class FasterVAE:
    """Nodes to insert on a VAE link, with what was found: ``seconds`` of the run's decodings, and what is left of them.

    ``distance`` is how far the picture moves; ``once`` are seconds that it costs once.
    """

    link: VAELink
    tries: Mapping[str, Step]
    seconds: float
    time_left: Range
    distance: float
    once: float

    @property
    def won(self) -> float:
        """Seconds that it wins for each picture."""
        return self.seconds * (1 - self.time_left.likely)


def faster_vae(plan: VAEPlan, probed: ProbedVAE, choice: str, pictures: int) -> FasterVAE | None:
    """Return the fastest of what a choice allows on a VAE link; None where nothing is faster, or pays too late.

    ``pictures``: in so many it has to win back what it costs once. Seconds multiply, and errors add up in squares.
    """
    faster = [one for one in probed.found if one.faster]
    subsets = [chosen for count in range(1, len(faster) + 1) for chosen in combinations(faster, count)]
    made = [_together(plan, probed.seconds, chosen) for chosen in subsets]
    allowed = [
        one for one in made if one.distance <= CHOICES[choice].limit and pays_from(one.once, one.won) <= pictures
    ]
    return max(allowed, key=lambda one: one.won, default=None)


def _together(plan: VAEPlan, seconds: float, chosen: Sequence[Probed]) -> FasterVAE:
    left = Range(*(prod(1 / max(one.speedup[end], 0.1) for one in chosen) for end in (2, 1, 0)))
    distance = sum(one.error**2 for one in chosen) ** 0.5
    tries = {one.name: plan.tries[one.name] for one in chosen}
    return FasterVAE(plan.link, tries, seconds, left, distance, sum(one.once for one in chosen))
