"""What the node Benchmark Sweep and the command line share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..core.errors import InvalidSetting
from ..core.technique import detach_all
from ..optimizers.hosts.comfyui.model import ModelTarget, require_model
from ..optimizers.hosts.comfyui.protocols import VAE, ModelPatcher
from ..optimizers.hosts.comfyui.vae import VAETarget
from ..server.built_in_presets import BUILT_IN
from ..server.recipes import apply_recipe, check_steps, full_id, ids_by_title
from ..workbench.comfyui.comparison import ComparisonSettings
from ..workbench.comfyui.sampling import SamplingJob
from ..workbench.comfyui.sweeping import Bench
from ..workbench.recipe import Recipe, Step, Value
from ..workbench.sweep.space import Cell, Range, Space, nodes_of, parse_space
from . import NODES

__all__ = ["BUILT_IN", "bench_for", "plain", "read_space"]


def read_space(text: str) -> Space:
    """Read the settings to try and check each, so that no cell fails for a typing mistake (`InvalidSetting`)."""
    space = _with_ids(parse_space(text, "ApplyToMe.ratio: 0.25, 0.5"))
    for name, values in space.values.items():
        for value in (values.low, values.high) if isinstance(values, Range) else values:
            check_steps(steps_of({name: value}), "The grid", NODES)
    return space


def _with_ids(space: Space) -> Space:
    """Return a space with the ids of nodes in the place of their titles; `InvalidSetting` for one under both names."""
    if not any(" " in name for name in space.values):
        return space
    ids = ids_by_title(NODES)
    values: dict[str, tuple[Value, ...] | Range] = {}
    for name, given in space.values.items():
        node, dot, setting = name.partition(".")
        found = f"{ids.get(node.casefold(), node)}{dot}{setting}"
        if found in values:
            raise InvalidSetting(f"{name} is there twice, also as {found}.", "Put all its values on one line.")
        values[found] = given
    return Space(values)


def steps_of(cell: Cell) -> tuple[Step, ...]:
    """Return the nodes that a cell applies, in the order in which the space names them."""
    inputs: dict[str, dict[str, Value]] = {}
    for node, values in nodes_of(cell).items():
        inputs.setdefault(full_id(node), {}).update(values)
    return tuple(Step(node, values) for node, values in inputs.items())


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


def bench_for(model: ModelPatcher, vae: VAE | None, job: SamplingJob, settings: ComparisonSettings) -> Bench:
    """Return what measures cells, with our nodes to apply them."""
    require_model(model)

    def apply(steps: tuple[Step, ...]) -> tuple[ModelPatcher, VAE | None, Sequence[str]]:
        # Cells report nowhere by themselves: their activity is in the comparison.
        applied = apply_recipe(Recipe("this cell", steps), {"model": model, "vae": vae}, NODES)
        return applied.objects["model"], applied.objects.get("vae"), applied.left_out

    return Bench(model, vae, job, settings, steps_of, apply)
