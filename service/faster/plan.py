"""What can make a model or a VAE faster on this machine, by how much the picture may change: what is to be tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

import torch

from ...optimizers.attention.registry import BACKENDS, probe_backend
from ...optimizers.core.choices import CHOICES
from ...optimizers.core.errors import CannotHelp
from ...optimizers.core.phrases import Phrase, phrase
from ...optimizers.in_comfyui.comfy_attention import host_does, nothing_before
from ...optimizers.in_comfyui.structure.protocols import ModelPatcher
from ...optimizers.step_reuse.reuse_settings import FEWEST_STEPS
from ...optimizers.token_merging.kv_downsample import minimum_tokens
from ..apply_recipe import Machine, Nodes, built_in_recipe, changed_by, machine_here, made
from ..comfyui.machine import host_device
from ..comfyui.unloaded import model_file, network_in
from ..recipe import PREFIX, Step
from .node_types import class_of, node_type
from .workflow import ModelLink, Workflow

REUSE_STEPS, _PRESET = "PacelineReuseSteps", "PacelineOptimizePreset"
MERGING, ATTENTION, _INT8 = "PacelineApplyToMe", "PacelineSetAttentionProcessor", "PacelineQuantizeInt8"

DISTILLED = 8
"""Models that take at most so many steps were made for that."""

_COMPILES = {"model": "PacelineCompileUNet", "vae": "PacelineCompileVAE"}
"""Our node that compiles what a link gives."""

_COMPILE = ("TorchCompile", "ModelCompile+")
"""Begin the types of nodes that compile: ComfyUI's, those of kijai/ComfyUI-KJNodes and of cubiq/ComfyUI_essentials."""

_DO_WHAT_OURS_DOES = {
    "TomePatchModel": MERGING,
    "ToDoPatchModel": MERGING,  # ethansmith2000/comfy-todo
    "EasyCache": REUSE_STEPS,
    "LazyCache": REUSE_STEPS,
    "WanVideoTeaCacheKJ": REUSE_STEPS,
    "PathchSageAttentionKJ": ATTENTION,
    "PatchFlashAttentionKJ": ATTENTION,
}
"""Our node by the other's type. Only what changes a MODEL: nothing else is tried."""

_FILES = {"ckpt_name": "checkpoints", "unet_name": "diffusion_models"}
"""Folders of ComfyUI's models, by the inputs of its own loaders that name a file."""

_OWN = ("nodes", "comfy_extras.")
"""Modules of ComfyUI's own nodes: what those of other packs do to a model is not known."""

_COMFYUIS_OWN = {"WanAnimate2Cache": "WanAnimate2ToVideo", "FluxKVCache": "ReferenceLatent"}
"""Caches of ComfyUI for one network, by their ids, and the node beside which there is something to keep."""


@dataclass(frozen=True)
class Plan:
    """What is tried on the link of a model or a VAE.

    Attributes:
        tries: nodes that make an evaluation or a decoding shorter, each by the title under which it is probed, that
            first which gains most.
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
    """Return what is tried on each link of a workflow: of models where anything is, then of VAEs."""
    machine, links = machine_here(), [*workflow.model_links, *workflow.vae_links]
    plans = [
        _plan(workflow, link, choice, machine, nodes)
        for link in links
        if _PRESET not in map(workflow.type, link.upstream)  # it applies what would be inserted
    ]
    return [plan for plan in plans if plan.titles or plan.notes or plan.link.input == "vae"]


def network_before(workflow: Workflow, way: Sequence[str]) -> tuple[ModelPatcher, frozenset[str]] | None:
    """Return the network in the file that a model is loaded from, as ``network_in``.

    None where other packs, or inputs without a value, are on the way.
    """
    for id in way:
        kind = class_of(workflow.type(id))
        ours = workflow.type(id).startswith(PREFIX)
        if not ours and (kind is None or not getattr(kind, "RELATIVE_PYTHON_MODULE", "nodes").startswith(_OWN)):
            return None
    inputs: Mapping[str, Any] = workflow.inputs(way[-1]) if way else {}
    for name, folder in _FILES.items():
        file = workflow.known(inputs.get(name))
        path = model_file(folder, file) if isinstance(file, str) else None
        if path is not None:
            return network_in(path)
    return None


def _nothing_from(step: Step, network: ModelPatcher | None, nodes: Nodes) -> str:
    """Return why a node would do nothing, as far as that is known without its weights; empty where it may."""
    try:
        if step.node == ATTENTION:
            backend = str(step.inputs["backend"])
            return host_does(backend) if network is None else nothing_before(network, backend)
        if network is not None and step.node != _INT8:  # which times the layers
            made(step, {"model": network}, nodes)
    except CannotHelp as error:
        return error.brief
    return ""


def _approximate() -> list[Step]:
    """Return the attention that quantises, and works here; of the exact backends torch's own choice is the first."""
    inexact = [backend for backend in BACKENDS.values() if not backend.exact]
    there = [one.name for one in inexact if probe_backend(one, host_device(), torch.float16).function]
    return [Step(ATTENTION, {"backend": name}) for name in there]


def _plan(workflow: Workflow, link: ModelLink, choice: str, machine: Machine, nodes: Nodes) -> Plan:
    """Return the plan of a link."""
    way = {id: workflow.type(id) for id in link.upstream}
    there = {_DO_WHAT_OURS_DOES.get(type, type) for type in way.values()}
    if any(type.startswith(_COMPILE) for type in way.values()):
        there.add(_COMPILES[link.input])
    values = (value for id in way for value in workflow.inputs(id).values() if isinstance(value, str))
    file = next((value for value in values if "int8" in value.lower()), "")
    steps = link.steps
    # Each of their steps must be as short as can be. The node times the layers, and leaves out those that gain nothing.
    distilled = steps is not None and steps <= DISTILLED
    recipe = built_in_recipe(choice, replace(machine, fast_int8=distilled and machine.device == "cuda" and not file))
    tries, notes, changes = dict[str, Step](), list[Phrase](), CHOICES[choice].merging != ""
    approximate = _approximate() if changes else []
    known = network_before(workflow, link.upstream) if link.input == "model" else None
    for step in (*recipe.steps, *approximate):
        if changed_by(nodes[step.node]) == link.input and step.node not in there:
            title = _title(nodes[step.node])
            title += f" ({step.inputs['backend']})" if step in approximate else ""
            nothing = _nothing_from(step, known and known[0], nodes)
            if nothing:
                notes.append(phrase("{name} is left out: {why}.", name=title, why=nothing))
            else:
                tries[title] = step
    if _COMPILES[link.input] not in there:
        notes += _why_not_compiled(_title(nodes[_COMPILES[link.input]]), machine)
    if link.input == "vae":
        return Plan(link, tries, notes=tuple(notes))
    few = steps if steps is not None and steps < FEWEST_STEPS else None
    types = {workflow.type(id) for id in workflow}
    notes += [
        phrase("ComfyUI has the node {node} for such workflows; it is not measured here.", node=node_type(id).title)
        for id, beside in _COMFYUIS_OWN.items()
        if changes and beside in types and id not in types and class_of(id) is not None
    ]
    caches = [workflow.title(id) for id, type in way.items() if _DO_WHAT_OURS_DOES.get(type) == REUSE_STEPS]
    if changes and few is not None:
        notes.append(
            phrase("Reuse Steps is left out: of so few steps ({steps}), each changes the picture too much.", steps=few)
        )
    elif changes and caches:
        notes.append(phrase("Reuse Steps is left out: {node} skips steps already.", node=caches[0]))
    # On a processor small pictures have enough tokens.
    if machine.device != "cpu" and any(step.node == MERGING for step in tries.values()):
        least = minimum_tokens(machine.device)
        side = 16 * isqrt(least)  # a token of most models is 16 pixels wide
        notes.append(
            phrase(
                "Apply ToMe pays from about {least} tokens on, in most models {side} x {side} pixels.",
                least=least,
                side=side,
            )
        )
    if file:
        notes.append(phrase("Quantize int8 is left out: {file} has int8 weights already, by its name.", file=file))
    return Plan(link, tries, changes and few is None and REUSE_STEPS not in there, tuple(notes))


def _why_not_compiled(name: str, machine: Machine) -> Iterator[Phrase]:
    """Yield why a node that compiles is not tried on a machine."""
    if machine.device == "cpu":
        yield phrase("{name} is left out: it gains little on a processor, and compiles for minutes first.", name=name)
    elif machine.device != "cuda":
        yield phrase("{name} is left out: its gain on this device is unknown.", name=name)
    elif not machine.can_compile:
        yield phrase(
            "{name} is left out: torch compiles for this device with triton, which is not installed.", name=name
        )


def _title(node: Any) -> str:
    return str(node.define_schema().display_name)
