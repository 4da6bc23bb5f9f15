"""One cell of a sweep: the plain model against the one with the cell's nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import cast

from ..core.devices import is_out_of_memory
from ..core.errors import PacelineError, error_line
from ..core.technique import detach_all
from ..optimizers.hosts.comfyui.structure.model import require_model
from ..optimizers.hosts.comfyui.structure.protocols import VAE, ModelPatcher
from ..optimizers.hosts.comfyui.targets.model import ModelTarget
from ..optimizers.hosts.comfyui.targets.vae import VAETarget
from ..recipes.apply import Nodes, apply_recipe, check_steps, full_id, ids_by_title
from ..workbench.comfyui.comparison.compare import Side, compare
from ..workbench.comfyui.long_running import unload_models
from ..workbench.comfyui.sampling import SamplingJob
from ..workbench.measurement.measure import Comparison, MeasurePlan
from ..workbench.recipe import PREFIX, Recipe, Step, Value
from ..workbench.sweep.axes import ABSENT, Axes, Cell, parse_axes
from ..workbench.sweep.results import Result


def read_axes(text: str, nodes: Nodes) -> Axes:
    """Read the settings to try and check each, so that no cell fails for a typing mistake (`InvalidSetting`)."""
    ids = ids_by_title(nodes)

    def full_name(name: str) -> str:
        node, dot, setting = name.partition(".")
        return f"{ids.get(node.casefold(), node).removeprefix(PREFIX)}{dot}{setting}"

    return parse_axes(text, full_name, lambda name, value: check_steps(steps_of({name: value}), "It", nodes))


def steps_of(cell: Cell) -> tuple[Step, ...]:
    """Return the nodes that a cell applies, in the order in which the axes name them."""
    steps: dict[str, dict[str, Value]] = {}
    for name, value in cell.items():
        node, _, setting = name.partition(".")
        if setting or value != ABSENT:
            steps.setdefault(full_id(node), {}).update({setting: value} if setting else {})
    return tuple(Step(node, inputs) for node, inputs in steps.items())


def plain(model: ModelPatcher, vae: VAE | None) -> tuple[ModelPatcher, VAE | None, tuple[str, ...]]:
    """Return model and VAE without our techniques, and a line that names what was taken off."""
    require_model(model)
    bare, taken = detach_all(ModelTarget(model))
    bare_vae, taken_too = (None, ()) if vae is None else detach_all(VAETarget(vae))
    model = cast("ModelPatcher", bare) if taken else model
    vae = cast("VAE", bare_vae) if taken_too else vae
    names = ", ".join(technique.title for technique in (*taken, *taken_too))
    line = f"taken off for this measurement, because each setting is held against the plain model: {names}"
    return model, vae, (line,) if names else ()


@dataclass(frozen=True)
class Bench:
    """What all cells share: the plain MODEL and VAE (None to compare rough previews), and what is sampled how often."""

    nodes: Nodes
    model: ModelPatcher
    vae: VAE | None
    job: SamplingJob
    plan: MeasurePlan

    def measure(self, cell: Cell, say: Callable[[str], None], show: Callable[[float], None]) -> Result:
        """Measure a cell, ``say`` and ``show`` as of ``compare``; running out of memory and refusal are results too."""
        # Cells report nowhere by themselves: their activity is in the comparison.
        recipe, objects = Recipe("this cell", steps_of(cell)), {"model": self.model, "vae": self.vae}
        try:
            try:
                applied = apply_recipe(recipe, objects, self.nodes)
            except PacelineError as error:
                return Result(cell, "not possible", text=str(error))
            if applied.left_out:
                return Result(cell, "not possible", text="; ".join(applied.left_out))
            optimized = Side(applied.objects["model"], applied.objects.get("vae"))
            return _result_of(cell, compare(Side(self.model, self.vae), optimized, self.job, self.plan, say, show=show))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            text = error_line(error)
        # Outside of the handler: the traceback holds on to the tensors.
        unload_models()
        return Result(cell, "out of memory", text=text)


def _result_of(cell: Cell, found: Comparison) -> Result:
    evidence, share, control = found.evidence, found.verdict.seed_share, found.evidence.control
    if evidence.broken:
        return Result(cell, "broken", text=found.verdict.text)
    # An interval that says nothing leaves out no slowness either.
    low, high = evidence.speedup.interval or (None if evidence.speedup.rounds < 2 else 0.0, None)
    ratio = None if control is None else evidence.ratio(control)
    return Result(
        cell,
        "measured",
        speedup=evidence.speedup.ratio,
        low=low,
        high=high,
        seconds=median(found.seconds["optimized"]),
        # The same picture is no share of anything, also where another seed changes nothing.
        difference=0.0 if evidence.same_bits else share,
        memory_bytes=found.peak("optimized", "device_bytes") or found.peak("optimized", "process_bytes"),
        control=None if ratio is None or share is None else ratio * share,
        control_title="" if control is None else control.title,
        text=found.verdict.text,
    )
