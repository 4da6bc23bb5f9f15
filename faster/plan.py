"""What can make a model or a VAE faster on this machine, by how much the picture may change: what is to be tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import ClassVar

import torch

from ..core.choices import CHOICES
from ..core.phrases import Phrase, phrase
from ..optimizers.attention.policy import AUTO
from ..optimizers.hosts.comfyui.attention.technique import host_does
from ..optimizers.precision.settings import processor_dtype
from ..optimizers.step_reuse.settings import FEWEST_STEPS
from ..optimizers.token_merging.methods import minimum_tokens
from ..recipes.apply import Machine, Nodes, built_in_recipe, changed_by, machine_here
from ..workbench.recipe import PREFIX, Step
from .node_types import Link
from .others import ATTENTION, DO_WHAT_OURS_DOES, MERGING, OTHERS, others_here
from .workflow import ModelLink, Workflow, find_model_links, way_back

REUSE_STEPS, _PRECISION = "PacelineReuseSteps", "PacelineVAEPrecision"

DISTILLED = 8
"""Models that take at most so many steps were made for that."""

_FIRST = ("WanAnimate2Cache", "FluxKVCache", "PacelineQuantizeInt8", "PacelineCompileUNet", MERGING)
"""Where there is not work for all these are tried, before what makes attention alone quicker: caches for one network,
then what quickens all of its layers."""


@dataclass(frozen=True)
class VAELink:
    """An output that gives a VAE, and the inputs of the nodes that decode with it, as pairs of node and name."""

    input: ClassVar[str] = "vae"

    origin: Link
    receivers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Plan:
    """What is tried on a model link.

    Attributes:
        tries: nodes that make an evaluation shorter, each by the title under which it is probed.
        reuse: whether Reuse Steps can come behind them.
        notes: what is left out, and why.
    """

    link: ModelLink
    tries: dict[str, Step]
    reuse: bool
    notes: tuple[Phrase, ...]

    @property
    def titles(self) -> list[str]:
        """What can be tried."""
        return [*self.tries, *(["Reuse Steps"] if self.reuse else [])]

    def nodes(self, names: Sequence[str], budget: float | None) -> list[Step]:
        """Return the nodes to insert, in order."""
        reused = [] if budget is None else [Step(REUSE_STEPS, {"budget": budget})]
        return [*(step for name, step in self.tries.items() if name in names), *reused]


@dataclass(frozen=True)
class VAEPlan:
    """What is tried on a VAE link: each node by the title under which it is probed."""

    link: VAELink
    tries: dict[str, Step]


def make_plans(workflow: Workflow, choice: str, nodes: Nodes) -> list[Plan]:
    """Return what is tried on each model link of a workflow on which anything is."""
    machine = machine_here()
    others = others_here({workflow.type(id) for id in workflow}, machine.device, CHOICES[choice].merging != "")
    plans = [_plan(workflow, link, choice, machine, nodes, others) for link in find_model_links(workflow)]
    return [plan for plan in plans if plan is not None]


def most_gain_first(tries: Mapping[str, Step]) -> list[str]:
    """Return the titles in the order in which they are tried."""
    return sorted(tries, key=lambda title: [*_FIRST, tries[title].node].index(tries[title].node))


def _plan(
    workflow: Workflow, link: ModelLink, choice: str, machine: Machine, nodes: Nodes, others: Mapping[str, Step]
) -> Plan | None:
    way = {id: workflow.type(id) for id in link.upstream}
    if "PacelineOptimizePreset" in way.values():
        return None  # it applies what would be inserted
    there = {DO_WHAT_OURS_DOES.get(type, type) for type in way.values()}
    steps = link.steps
    few = steps if steps is not None and steps < FEWEST_STEPS else None
    values = (value for id in way for value in workflow.inputs(id).values() if isinstance(value, str))
    file = next((value for value in values if "int8" in value.lower()), "")
    # Each of their steps must be as short as can be. The node times the layers, and leaves out those that gain nothing.
    distilled = steps is not None and steps <= DISTILLED
    machine = replace(machine, fast_int8=distilled and machine.device == "cuda" and not file)
    recipe = [step for step in built_in_recipe(choice, machine).steps if changed_by(nodes[step.node]) == "model"]
    # The preset of *Fastest* moves pictures farther than that allows; this one leaves room for Reuse Steps.
    recipe = [Step(MERGING, {"preset": "quality"}) if step.node == MERGING else step for step in recipe]
    changes = CHOICES[choice].merging != ""
    tries = {**others} | {
        nodes[step.node].define_schema().display_name: step for step in recipe if step.node not in there
    }
    own = [title for title, step in tries.items() if step.node == ATTENTION and step.inputs["backend"] == AUTO]
    nothing = host_does(AUTO) if own else ""
    tries = {title: step for title, step in tries.items() if not (nothing and title in own)}
    caches = [workflow.title(id) for id, type in way.items() if DO_WHAT_OURS_DOES.get(type) == REUSE_STEPS]
    reuse = changes and few is None and REUSE_STEPS not in there
    least = minimum_tokens(machine.device)
    side = 16 * isqrt(least)  # a token of most models is 16 pixels wide
    notes = [phrase(OTHERS[step.node].note, node=title) for title, step in others.items()]
    notes += [phrase("{name} is left out: {why}.", name=title, why=nothing) for title in own if nothing]
    if changes and few is not None:
        notes.append(
            phrase("Reuse Steps is left out: of so few steps ({steps}) each changes the picture too much.", steps=few)
        )
    elif changes and caches:
        notes.append(phrase("Reuse Steps is left out: {node} leaves out steps already.", node=caches[0]))
    # On a processor small pictures have enough tokens.
    if machine.device != "cpu" and any(step.node == MERGING for step in tries.values()):
        notes.append(
            phrase(
                "Apply ToMe pays from about {least} tokens on, in most models {side} x {side} pixels.",
                least=least,
                side=side,
            )
        )
    if file:
        notes.append(phrase("Quantize int8 is left out: {file} has int8 weights already, by its name.", file=file))
    if not tries and not reuse:
        return None if not notes else Plan(link, {}, False, tuple(notes))
    return Plan(link, tries, reuse, tuple(notes))


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
