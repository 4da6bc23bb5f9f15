"""Our nodes in a sweep, from the node Benchmark Sweep and from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..core.errors import InvalidSetting
from ..core.technique import detach_all
from ..optimizers.hosts.comfyui.model import ModelTarget, require_model
from ..optimizers.hosts.comfyui.protocols import VAE, ModelPatcher
from ..optimizers.hosts.comfyui.vae import VAETarget
from ..workbench.comfyui.comparison import ComparisonSettings
from ..workbench.comfyui.sampling import SamplingJob
from ..workbench.comfyui.sweeping.cells import Bench
from ..workbench.recipe import Recipe, Step, Value
from ..workbench.sweep.axes import ABSENT, PICTURE, Axes, Cell, Range, parse_axes
from .recipes import Nodes, apply_recipe, check_steps, full_id, ids_by_title


def read_axes(text: str, nodes: Nodes) -> Axes:
    """Read the settings to try and check each, so that no cell fails for a typing mistake (`InvalidSetting`)."""
    axes = _with_ids(parse_axes(text, "ApplyToMe.ratio: 0.25, 0.5"), nodes)
    for name, values in axes.values.items():
        for value in (values.low, values.high) if isinstance(values, Range) else values:
            check_steps(steps_of({name: value}), "The grid", nodes)
    return axes


def bench_for(
    nodes: Nodes, model: ModelPatcher, vae: VAE | None, job: SamplingJob, settings: ComparisonSettings
) -> Bench:
    """Return what measures cells of our nodes."""

    def apply(steps: tuple[Step, ...]) -> tuple[ModelPatcher, VAE | None, Sequence[str]]:
        # Cells report nowhere by themselves: their activity is in the comparison.
        applied = apply_recipe(Recipe("this cell", steps), {"model": model, "vae": vae}, nodes)
        return applied.objects["model"], applied.objects.get("vae"), applied.left_out

    return Bench(model, vae, job, settings, steps_of, apply)


def _with_ids(axes: Axes, nodes: Nodes) -> Axes:
    """Return axes with the ids of nodes in the place of their titles; `InvalidSetting` for one under both names."""
    ids = ids_by_title(nodes) if any(" " in name for name in axes.values) else {}
    values: dict[str, tuple[Value, ...] | Range] = {}
    for name, given in axes.values.items():
        node, dot, setting = name.partition(".")
        found = f"{ids.get(node.casefold(), node)}{dot}{setting}"
        if found in values:
            raise InvalidSetting(f"{name} is there twice, also as {found}.", "Put all its values on one line.")
        values[found] = given
    return Axes(values)


def steps_of(cell: Cell) -> tuple[Step, ...]:
    """Return the nodes that a cell applies, in the order in which the axes name them."""
    nodes: dict[str, dict[str, Value]] = {}
    for name, value in cell.items():
        node, _, setting = name.partition(".")
        if node not in PICTURE and (setting or value != ABSENT):
            nodes.setdefault(full_id(node), {}).update({setting: value} if setting else {})
    return tuple(Step(node, inputs) for node, inputs in nodes.items())


def plain(model: ModelPatcher, vae: VAE | None) -> tuple[ModelPatcher, VAE | None, tuple[str, ...]]:
    """Return model and VAE without our techniques, and a line that names what was taken off."""
    require_model(model)
    bare, techniques = detach_all(ModelTarget(model))
    if techniques:
        model = cast("ModelPatcher", bare)
    if vae is not None:
        bare, of_vae = detach_all(VAETarget(vae))
        if of_vae:
            vae = cast("VAE", bare)
            techniques = (*techniques, *of_vae)
    if not techniques:
        return model, vae, ()
    names = ", ".join(technique.title for technique in techniques)
    line = f"taken off for this measurement, because each setting is held against the plain model: {names}"
    return model, vae, (line,)
