"""Apply a recipe: run the nodes that it names, as if they were wired one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ..core.errors import CannotHelp, InvalidSetting
from ..core.phrases import joined, phrase, translatable
from ..optimizers.hosts.comfyui.method_proxy import stack_on
from ..optimizers.hosts.comfyui.model import stack_of
from .joint_report import report_together

if TYPE_CHECKING:
    from ..workbench.recipe import Recipe, Step

Nodes = Mapping[str, Any]
"""The classes of our nodes by id: the package ``nodes`` hands them in."""

PREFIX = "Paceline"
"""Every node's id begins with it; a person may leave it out."""

_NO_STEPS = ("PacelineOptimizePreset", "PacelineRemoveOptimizations")


@dataclass
class Applied:
    """What came of a recipe.

    Attributes:
        objects: model, vae, ... with the recipe's techniques, by the names of the nodes' inputs.
        steps: the steps that were applied, in order.
        left_out: a line for each step that cannot help here, with the reason.
    """

    objects: dict[str, Any]
    steps: list[Step] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def full_id(node: str) -> str:
    """Return a node's id, given with its prefix or without."""
    return PREFIX + node.removeprefix(PREFIX)


def describe_step(step: Step) -> str:
    """Return e.g. ``ApplyToMe(preset=balanced)``."""
    values = ", ".join(f"{name}={value}" for name, value in step.inputs.items())
    return f"{step.node.removeprefix(PREFIX)}({values})"


def shown_steps(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return what the page makes single nodes of: ``Step`` in web/js/payloads.d.ts."""
    return [{"node": step.node, "inputs": dict(step.inputs)} for step in steps]


def check_steps(steps: Iterable[Step], where: str, nodes: Nodes) -> None:
    """Check that nodes, inputs and values exist, before anything is run.

    Args:
        steps: what to check.
        where: what to call their source in errors, e.g. ``The recipe 'mine'``.
        nodes: that there are.

    Raises:
        InvalidSetting: naming the first thing that is wrong, and what is allowed.
    """
    for step in steps:
        if step.node not in nodes:
            known = ", ".join(sorted(name.removeprefix(PREFIX) for name in nodes))
            problem = phrase("There is no node {node}.", node=step.node.removeprefix(PREFIX))
            raise InvalidSetting(problem, phrase("The nodes are: {known}.", known=known))
        schema = nodes[step.node].define_schema()
        inputs = {entry.id: entry for entry in schema.inputs}
        if step.node in _NO_STEPS or schema.is_output_node:
            raise InvalidSetting(
                phrase("{where} has the node {node}, which cannot be a step.", where=where, node=schema.display_name),
                translatable("Steps are nodes that change how a model, a VAE or a ControlNet runs."),
            )
        for name, value in step.inputs.items():
            if name not in inputs:
                settings = [key for key, entry in inputs.items() if isinstance(entry, io.WidgetInput)]
                raise InvalidSetting(
                    phrase("{where} sets {name} of {node}.", where=where, name=name, node=schema.display_name),
                    phrase("Its settings are: {names}.", names=", ".join(settings)),
                )
            allowed = _allowed(inputs[name], value)
            if allowed:
                raise InvalidSetting(
                    phrase(
                        "{where} sets {name} of {node} to {value}.",
                        where=where,
                        name=name,
                        node=schema.display_name,
                        value=repr(value),
                    ),
                    phrase("It is {allowed}.", allowed=allowed),
                )


def is_allowed(entry: Any, value: Any) -> bool:
    """Return whether an input of a node takes a value."""
    return not _allowed(entry, value)


def _allowed(entry: Any, value: Any) -> str:
    """Return what an input takes if it does not take ``value``, else an empty text."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(entry, io.Combo.Input):
        options = [getattr(option, "value", option) for option in entry.options or ()]
        return "" if value in options else phrase("one of: {options}", options=", ".join(map(str, options)))
    if isinstance(entry, io.Boolean.Input):
        return "" if isinstance(value, bool) else translatable("true or false")
    if isinstance(entry, (io.Int.Input, io.Float.Input)):
        whole = isinstance(entry, io.Int.Input)
        fits = number and (isinstance(value, int) or not whole)
        low, high = entry.min, entry.max
        if fits and (low is None or value >= low) and (high is None or value <= high):
            return ""
        if whole:
            return phrase("a whole number from {low} to {high}", low=str(low), high=str(high))
        return phrase("a number from {low} to {high}", low=str(low), high=str(high))
    if isinstance(entry, io.String.Input):
        return "" if isinstance(value, str) else translatable("text")
    return translatable("connected, not set")


def apply_recipe(recipe: Recipe, objects: dict[str, Any], nodes: Nodes, report_to: str | None = None) -> Applied:
    """Run the nodes of a recipe.

    Args:
        recipe: what to apply.
        objects: what is connected, by the names of the nodes' inputs (``model``, ``vae``); None where nothing is.
        nodes: that there are.
        report_to: id of the node that techniques report to.

    Raises:
        InvalidSetting: if the recipe names a node or an input that does not exist, or a value that is not allowed. A
            step that merely does not fit this model or machine is left out, which is said.
    """
    check_steps(recipe.steps, phrase("The recipe {name}", name=repr(recipe.name)), nodes)
    applied = Applied({name: value for name, value in objects.items() if value is not None})
    for step in recipe.steps:
        cls = nodes[step.node]
        schema = cls.define_schema()
        inputs = {entry.id: entry for entry in schema.inputs}
        target = next(iter(inputs))  # the object that a node changes is its first input and its first output
        if target not in applied.objects:
            applied.left_out.append(phrase("{node}: no {name} is connected", node=schema.display_name, name=target))
            continue
        values = {name: entry.default for name, entry in inputs.items() if getattr(entry, "default", None) is not None}
        values |= {name: value for name, value in applied.objects.items() if name in inputs}
        settings = values | dict(step.inputs)
        try:
            # It reports to the node that applies the recipe: only that one is in the graph.
            reporting: Any = type(cls.__name__, (cls,), {"reports_to": report_to})
            result = reporting.apply(**{name: value for name, value in settings.items() if name != "strict"})
        except CannotHelp as error:
            if error.must_be_mended:
                raise
            applied.left_out.append(joined(": ", [schema.display_name, str(error)]))
            continue
        applied.objects[target] = result.args[0]
        applied.steps.append(step)
    model, vae = (applied.objects.get(name) for name in ("model", "vae"))
    attached = [*(stack_of(model).techniques if model else ()), *stack_on(vae).techniques]
    report_together([technique for technique in attached if report_to is not None and technique.node_id == report_to])
    return applied


def changed_by(node: Any) -> str:
    """Return what a node changes: it is its first input and its first output."""
    return str(node.define_schema().inputs[0].id)


def ids_by_title(nodes: Nodes) -> dict[str, str]:
    """Return the ids of our nodes, without their prefix, by their titles in small letters."""
    return {node.define_schema().display_name.casefold(): id.removeprefix(PREFIX) for id, node in nodes.items()}
