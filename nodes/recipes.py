"""Apply a recipe: run the nodes that it names, as if they were wired one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ..optimizers.errors import BackendUnavailable, InvalidSetting, UnsupportedModel
from ..optimizers.recipes import Recipe, Step
from .common import reporting_to


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


def apply_recipe(recipe: Recipe, objects: dict[str, Any], node: str | None = None) -> Applied:
    """Run the nodes of a recipe.

    Args:
        recipe: what to apply.
        objects: what is connected, by the names of the nodes' inputs (``model``, ``vae``); None where nothing is.
        node: id of the node that techniques report to.

    Raises:
        InvalidSetting: if the recipe names a node or an input that does not exist, or a value that is not allowed. A
            step that merely does not fit this model or machine is left out, which is said.
    """
    applied = Applied({name: value for name, value in objects.items() if value is not None})
    for step in recipe.steps:
        cls = node_class(step.node)
        schema = cls.define_schema()
        inputs = {entry.id: entry for entry in schema.inputs}
        unknown = set(step.inputs) - set(inputs)
        if unknown:
            raise InvalidSetting(
                f"The recipe {recipe.name!r} sets {', '.join(sorted(unknown))} of {schema.display_name}.",
                f"Its inputs are: {', '.join(inputs)}.",
            )
        target = next(iter(inputs))  # the object that a node changes is its first input and its first output
        if target not in applied.objects:
            applied.left_out.append(f"{schema.display_name}: no {target} is connected")
            continue
        values = {name: entry.default for name, entry in inputs.items() if getattr(entry, "default", None) is not None}
        values |= {name: value for name, value in applied.objects.items() if name in inputs}
        try:
            with reporting_to(node):
                result = cls.execute(**values | dict(step.inputs))
        except (UnsupportedModel, BackendUnavailable) as error:
            applied.left_out.append(f"{schema.display_name}: {error}")
            continue
        applied.objects[target] = result.args[0]
        applied.steps.append(step)
    return applied


def node_class(node: str) -> Any:
    """Return the class of one of our nodes.

    Raises:
        InvalidSetting: if there is none of that id.
    """
    from . import NODES

    modules = {name: module for module, name in NODES}
    if node not in modules:
        known = ", ".join(sorted(name.removeprefix("Paceline") for name in modules))
        raise InvalidSetting(f"There is no node {node.removeprefix('Paceline')}.", f"The nodes are: {known}.")
    return getattr(import_module(f".{modules[node]}", __package__), node)
