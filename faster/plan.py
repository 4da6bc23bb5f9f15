"""What can make a model or a VAE faster on this machine, by how much the picture may change: what is to be tried."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import torch

from ..core.choices import CHOICES
from ..core.phrases import Phrase, phrase
from ..optimizers.attention.policy import AUTO
from ..optimizers.hosts.comfyui.attention.technique import host_does
from ..optimizers.precision.settings import processor_dtype
from ..optimizers.step_reuse.settings import FEWEST_STEPS
from ..optimizers.token_merging.kv_downsample import minimum_tokens
from ..recipes.apply import Machine, Nodes, built_in_recipe, changed_by, machine_here
from ..workbench.recipe import Step
from .node_types import class_of, node_type
from .others import ATTENTION, DO_WHAT_OURS_DOES, MERGING, OTHERS
from .workflow import ModelLink, Workflow

REUSE_STEPS, _PRECISION, _PRESET = "PacelineReuseSteps", "PacelineVAEPrecision", "PacelineOptimizePreset"

DISTILLED = 8
"""Models that take at most so many steps were made for that."""

_FIRST = ("WanAnimate2Cache", "FluxKVCache", "PacelineQuantizeInt8", "PacelineCompileUNet", MERGING)
"""Where there is not work for all these are tried, before what makes attention alone quicker: caches for one network,
then what quickens all of its layers."""


@dataclass(frozen=True)
class Plan:
    """What is tried on the link of a model or a VAE.

    Attributes:
        tries: nodes that make an evaluation or a decoding shorter, each by the title under which it is probed.
        reuse: whether Reuse Steps can come behind them.
        notes: what is left out, and why.
    """

    link: ModelLink
    tries: dict[str, Step]
    reuse: bool = False
    notes: tuple[Phrase, ...] = ()

    @property
    def titles(self) -> list[str]:
        """What can be tried."""
        return [*self.tries, *(["Reuse Steps"] if self.reuse else [])]

    def nodes(self, names: Sequence[str], budget: float | None) -> list[Step]:
        """Return the nodes to insert, in order."""
        reused = [] if budget is None else [Step(REUSE_STEPS, {"budget": budget})]
        return [*(step for name, step in self.tries.items() if name in names), *reused]


def make_plans(workflow: Workflow, choice: str, nodes: Nodes) -> list[Plan]:
    """Return what is tried on each link of a workflow on which anything is: those of models, then those of VAEs."""
    machine, links = machine_here(), [*workflow.model_links, *workflow.vae_links]
    others = _others_here({workflow.type(id) for id in workflow}, machine.device, CHOICES[choice].merging != "")
    plans = [
        _plan(workflow, link, choice, machine, nodes, others)
        if link.input == "model"
        else _vae_plan(workflow, link, choice, machine, nodes)
        for link in links
        if _PRESET not in map(workflow.type, link.upstream)  # it applies what would be inserted
    ]
    return [plan for plan in plans if plan.titles or plan.notes]


def _others_here(types: Collection[str], device: str, changes: bool) -> dict[str, Step]:
    """Return the nodes of ComfyUI's own to try on a model, by their titles.

    ``types`` are those of the workflow's nodes; ``changes``: whether the picture may change.
    """
    found = {}
    for id, other in OTHERS.items():
        fits = (other.same or changes) and other.device in ("", device) and (not other.beside or other.beside in types)
        if not fits or id in types or class_of(id) is None:
            continue
        kind, wanted = node_type(id), [name for name in other.inputs if "." not in name]  # without those of a choice
        if all(other.inputs[name] in kind.choices.get(name, ()) for name in wanted):
            found[kind.title] = Step(id, other.inputs)
    return found


def most_gain_first(tries: Mapping[str, Step]) -> list[str]:
    """Return the titles in the order in which they are tried."""
    return sorted(tries, key=lambda title: [*_FIRST, tries[title].node].index(tries[title].node))


def _plan(
    workflow: Workflow, link: ModelLink, choice: str, machine: Machine, nodes: Nodes, others: Mapping[str, Step]
) -> Plan:
    way = {id: workflow.type(id) for id in link.upstream}
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
    return Plan(link, tries, reuse, tuple(notes))


def _vae_plan(workflow: Workflow, link: ModelLink, choice: str, machine: Machine, nodes: Nodes) -> Plan:
    there = {workflow.type(id) for id in link.upstream}
    dtype = _short_dtype(machine)
    steps = [
        *([Step(_PRECISION, {"dtype": dtype})] if dtype else []),
        *(step for step in built_in_recipe(choice, machine).steps if changed_by(nodes[step.node]) == "vae"),
    ]
    tries = {str(nodes[step.node].define_schema().display_name): step for step in steps if step.node not in there}
    return Plan(link, tries)


def _short_dtype(machine: Machine) -> str:
    """Return the short numbers that suit a machine; empty where none do."""
    if machine.device == "cpu":
        return "" if processor_dtype() == torch.float32 else "auto"
    if machine.device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "fp16"
    return "bf16"
