"""Recipes: those that come with the pack, and how one is attached, as if its nodes were wired one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from comfy_api.latest import io

from ..optimizers.core.activity import Summary
from ..optimizers.core.choices import CHOICES
from ..optimizers.core.errors import CannotHelp, InvalidSetting, require_choice, require_text
from ..optimizers.core.phrases import phrase
from ..optimizers.core.settings import check_value
from ..optimizers.core.technique import KINDS
from ..optimizers.in_comfyui.comfy_int8 import int8_gains
from ..optimizers.in_comfyui.int8_linear import int8_layers
from ..optimizers.in_comfyui.run.comfy_technique import AnyTechnique, attach_for
from ..optimizers.in_comfyui.run.reporting import announce
from ..optimizers.in_comfyui.structure.protocols import ModelPatcher
from .comfyui.machine import host_device
from .recipe import PREFIX, Recipe, Step

Nodes = Mapping[str, Any]
"""The classes of our nodes by id: the package ``nodes`` hands them in."""


@dataclass
class RecipeResult:
    """The result of a recipe.

    ``objects`` are by the names of the nodes' inputs, ``steps`` those that were applied, in order; ``left_out`` has a
    line for each step that cannot help here.
    """

    objects: dict[str, Any]
    steps: list[Step] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def shown_steps(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return ``Step`` in web/js/payloads.d.ts for each."""
    return [{"node": step.node, "inputs": dict(step.inputs)} for step in steps]


def check_steps(steps: Iterable[Step], nodes: Nodes) -> None:
    """Check that nodes, inputs and values exist, before anything is run; `InvalidSetting` names what does not.

    Limits between values are checked by a technique's own settings.
    """
    for step in steps:
        if step.node not in nodes:
            known = ", ".join(sorted(name.removeprefix(PREFIX) for name in nodes))
            raise InvalidSetting(f"There is no node {step.node.removeprefix(PREFIX)}.", f"The nodes are: {known}.")
        schema = nodes[step.node].define_schema()
        widgets = {entry.id: entry for entry in schema.inputs if isinstance(entry, io.WidgetInput)}
        if not hasattr(nodes[step.node], "technique"):
            remedy = "Name a node that changes how a model, a VAE or a ControlNet runs."
            raise InvalidSetting(f"{schema.display_name} cannot be a step of a recipe.", remedy)
        for name, value in step.inputs.items():
            if name not in widgets:
                settings = ", ".join(widgets)
                raise InvalidSetting(f"{schema.display_name} has no setting {name}.", f"Its settings are: {settings}.")
            _check_value(f"{name} of {schema.display_name}", widgets[name], value)


def _check_value(name: str, entry: Any, value: Any) -> None:
    if isinstance(entry, io.String.Input):
        require_text(name, value)
    elif isinstance(entry, io.Combo.Input):
        choices = tuple(getattr(option, "value", option) for option in entry.options or ())
        check_value(name, value, entry.default, {"choices": choices})
    else:
        limits = {"minimum": entry.min, "maximum": entry.max} if hasattr(entry, "min") else {}
        check_value(name, value, entry.default, limits)


def apply_recipe(recipe: Recipe, objects: dict[str, Any], nodes: Nodes, report_to: str | None = None) -> RecipeResult:
    """Attach the techniques of a recipe, as if its nodes were wired one after the other.

    A step that merely does not fit this model or machine is left out, which is said; `InvalidSetting` for a node, input
    or value that does not exist. ``objects`` are by the names of the nodes' inputs (``model``, ``vae``), None where
    nothing is connected; ``report_to`` is the id of a node.
    """
    check_steps(recipe.steps, nodes)
    applied = RecipeResult({name: value for name, value in objects.items() if value is not None})
    attached: dict[tuple[str, str], AnyTechnique] = {}
    for step in recipe.steps:
        target, title = changed_by(nodes[step.node]), nodes[step.node].define_schema().display_name
        if target not in applied.objects:
            applied.left_out.append(f"{title}: no {target} is connected")
            continue
        try:
            on, technique = made(step, applied.objects, nodes)
            applied.objects[target] = attach_for(report_to, on, technique)
        except CannotHelp as error:
            if error.must_be_mended:
                raise
            applied.left_out.append(f"{title}: {error}")
            continue
        applied.steps.append(step)
        attached[target, technique.kind] = technique
    if report_to is not None:
        in_order = sorted(attached, key=lambda place: (place[0], KINDS.index(place[1])))
        report_together([attached[place] for place in in_order])
    return applied


def behind(step: Step, thing: Any, nodes: Nodes) -> Any:
    """Return the MODEL or VAE that a step's node changes, behind that node; `CannotHelp` says why it cannot be."""
    return attach_for(None, *made(step, {changed_by(nodes[step.node]): thing}, nodes))


def made(step: Step, objects: Mapping[str, Any], nodes: Nodes) -> tuple[Any, AnyTechnique]:
    """Return a step's technique, behind what it goes on, with the node's defaults for what the step does not set."""
    node = nodes[step.node]
    inputs = {entry.id: entry for entry in node.define_schema().inputs if entry.id != "strict"}
    values = {name: entry.default for name, entry in inputs.items() if getattr(entry, "default", None) is not None}
    values |= {name: value for name, value in {**objects, **step.inputs}.items() if name in inputs}
    on, technique, *_ = node.technique(**values)
    return on, technique


def changed_by(node: Any) -> str:
    """Return the name of the input that a node changes: its first, which is its first output too."""
    return str(node.define_schema().inputs[0].id)


def report_together(techniques: Sequence[AnyTechnique]) -> None:
    """Let the techniques of one node share its message after each run."""
    if len(techniques) < 2:
        return

    def report() -> None:
        announce(techniques[0].node_id, _summary_of_all(techniques), ", ".join(item.title for item in techniques))

    for technique in techniques:
        technique.report = report


def _summary_of_all(techniques: Sequence[AnyTechnique]) -> Summary:
    summaries = {technique.title: technique.last_summary() for technique in techniques}
    active = [title for title, summary in summaries.items() if summary.state in ("active", "partly")]
    states = {summary.state for summary in summaries.values()}
    headline = phrase("{count} of {total} active", count=len(active), total=len(techniques))
    if active:
        headline = phrase("{active}: {titles}", active=headline, titles=", ".join(active))
    if "working" in states:
        return Summary("working", headline if active else phrase("sampling"))
    details: list[str] = []
    for title, summary in summaries.items():
        details += [f"{title}: {summary.headline}", *(f"  {line}" for line in summary.details)]
    # An object that has not run yet (the VAE, before the first decoding) does not replace the report of one that has.
    states = states - {"waiting"} or states
    counts = {"active": len(active), "techniques": len(techniques)}
    state = states.pop() if len(states) == 1 else "partly"
    neutral = all(summaries[title].neutral for title in active)
    return Summary(state, headline, counts, tuple(details), neutral)


BUILT_IN = tuple(CHOICES)


@dataclass(frozen=True)
class Machine:
    """The facts that a preset's choice depends on.

    ``device`` is torch's type (``cuda``, ``cpu``, ``mps``, ...); ``can_compile`` says whether torch.compile's default
    backend can generate code here, ``fast_int8`` whether an int8 matrix product is faster than the float one, and
    ``in_int8`` whether the model has int8 weights already.
    """

    device: str
    can_compile: bool = False
    fast_int8: bool = False
    in_int8: bool = False


def machine_for(model: ModelPatcher, name: str) -> Machine:
    """Return the facts by which techniques of the preset ``name`` are chosen for a MODEL on its device."""
    device = torch.device(model.load_device)
    in_int8 = name == "fast" and bool(int8_layers(model.model.diffusion_model))
    gains = name == "fast" and not in_int8 and int8_gains(model)  # timed, and no other preset asks for it
    return Machine(device.type, _can_compile(device.type), gains, in_int8)


def machine_here() -> Machine:
    """Return the machine before a model is loaded; whether int8 is faster is not known then."""
    device = host_device().type
    return Machine(device, _can_compile(device))


def _can_compile(device: str) -> bool:
    return device == "cuda" and find_spec("triton") is not None


def built_in_recipe(name: str, machine: Machine, reuse_steps: bool = False) -> Recipe:
    """Return the recipe ``name`` for ``machine``; `InvalidSetting` for another name.

    With ``reuse_steps`` those that change pictures leave out steps in the place of tokens: with both, single pictures
    leave the budget of Reuse Steps (docs/results.md).
    """
    require_choice("preset", name, BUILT_IN)
    choice = CHOICES[name]
    steps = [Step("PacelineSetAttentionProcessor", {"backend": "auto"})]
    # Compiling pays on GPUs. On CPUs the time goes into matrix products that it cannot improve (1.00x to 1.09x
    # measured), after minutes of waiting.
    if machine.can_compile and machine.device == "cuda":
        steps += [Step("PacelineCompileUNet"), Step("PacelineCompileVAE")]
    if choice.merging and not reuse_steps:
        steps.insert(0, Step("PacelineApplyToMe", {"preset": choice.merging}))
    if name == "fast" and machine.fast_int8:
        steps.insert(0, Step("PacelineQuantizeInt8", {"preset": "balanced"}))
    if reuse_steps and choice.merging:
        steps.append(Step("PacelineReuseSteps", {"budget": choice.limit}))
    already = " The model has int8 weights already, so Quantize int8 is not among the steps." if machine.in_int8 else ""
    return Recipe(name, tuple(steps), f"{choice.label}. {choice.sentence}{already}")
