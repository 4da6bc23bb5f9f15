"""Benchmark Sweep: cells, each the plain model against the one with the cell's nodes, the preset, and the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from ...measure.measure import Comparison, MeasurePlan
from ...optimizers.core.activity import Summary
from ...optimizers.core.devices import device_name, is_out_of_memory
from ...optimizers.core.errors import PacelineError, error_line
from ...optimizers.core.files import fingerprint_of
from ...optimizers.core.phrases import phrase
from ...optimizers.in_comfyui.run.reporting import Payload, send
from ...optimizers.in_comfyui.structure.model_facts import describe_model
from ...optimizers.in_comfyui.structure.protocols import VAE, ModelPatcher
from ...optimizers.in_comfyui.structure.user_folder import user_folder
from ...optimizers.in_comfyui.targets.method_proxy import stack_on
from ...optimizers.in_comfyui.targets.model_target import ModelTarget
from ...optimizers.in_comfyui.targets.vae_target import VAETarget
from ..apply_recipe import Nodes, apply_recipe, check_steps
from ..comfyui.compare import Side, compare
from ..comfyui.comparison_report import environment
from ..comfyui.machine import host_version, progress_bar, unload_models
from ..comfyui.sampling_job import SamplingJob
from ..faster.same_work import made_of
from ..faster.workflow import Workflow
from ..recipe import PREFIX, Recipe, Step, Value, save_recipe
from .axes import ABSENT, Axes, Cell, describe_cell, parse_axes
from .study import Result, Sweep, SweepPlan, best

SWEEP_EVENT = "paceline.sweep"
_MOST_CELLS = 500
"""Of a larger sweep, the page is shown the last ones."""


def read_axes(text: str, nodes: Nodes) -> Axes:
    """Read the settings to try and check each, so that no cell fails for a typing mistake (`InvalidSetting`)."""
    ids = {node.define_schema().display_name.casefold(): id.removeprefix(PREFIX) for id, node in nodes.items()}

    def full_name(name: str) -> str:
        node, dot, setting = name.partition(".")
        return f"{ids.get(node.casefold(), node).removeprefix(PREFIX)}{dot}{setting}"

    return parse_axes(text, full_name, lambda name, value: check_steps(steps_of({name: value}), nodes))


def steps_of(cell: Cell) -> tuple[Step, ...]:
    """Return the nodes that a cell applies, in the order in which the axes name them."""
    steps: dict[str, dict[str, Value]] = {}
    for name, value in cell.items():
        node, _, setting = name.partition(".")
        if setting or value != ABSENT:
            steps.setdefault(PREFIX + node.removeprefix(PREFIX), {}).update({setting: value} if setting else {})
    return tuple(Step(node, inputs) for node, inputs in steps.items())


def plain(model: ModelPatcher, vae: VAE | None) -> tuple[ModelPatcher, VAE | None, tuple[str, ...]]:
    """Return model and VAE without our techniques, and a line that names what was taken off."""
    of_model = ModelTarget(model)
    of_vae = VAETarget(vae) if vae is not None and stack_on(vae).techniques else None
    names = ", ".join(one.title for one in (*of_model.techniques, *(of_vae.techniques if of_vae else ())))
    line = f"taken off for this measurement, because each setting is compared with the plain model: {names}"
    return of_model.with_techniques(()), of_vae.with_techniques(()) if of_vae else vae, (line,) if names else ()


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
        try:
            try:  # cells report nowhere by themselves: their activity is in the comparison
                applied = apply_recipe(Recipe("", steps_of(cell)), {"model": self.model, "vae": self.vae}, self.nodes)
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
    evidence = found.evidence
    if evidence.broken:
        return Result(cell, "broken", text=found.verdict.text)
    # An interval that says nothing leaves out no slowness either.
    low, high = evidence.speedup.interval or (None if evidence.speedup.rounds < 2 else 0.0, None)
    # The same picture is no share of anything, also where another seed changes nothing.
    far, seconds = 0.0 if evidence.same_bits else found.verdict.seed_share, median(found.seconds["optimized"])
    return Result(cell, "measured", evidence.speedup.ratio, low, high, seconds, far, found.verdict.text)


def run_sweep(
    bench: Bench,
    axes: Axes,
    plan: SweepPlan,
    source: str,
    announce: Callable[[Summary], None],
    node: str | None,
) -> tuple[list[Result], Result | None]:
    """Measure all cells that have no result yet; return all, and the one that was saved as a preset.

    ``source`` tells where everything that is connected comes from (:func:`digest_upstream`); ``announce`` is told what
    goes on, and what is kept where it stops; ``node`` is the id of the node in which the table grows. Errors as of
    `Sweep`.
    """
    sweep = Sweep(axes, plan, _job_identity(bench, source))
    total, bar = sweep.total, progress_bar()
    results: list[Result] = []

    def measure(cell: Cell) -> Result:
        done = len(results)

        def tell(doing: str) -> None:
            text, number = f"{describe_cell(cell)}: {doing}", min(done + 1, total)
            doing = phrase("cell {number} of {total}: {cell}", number=number, total=total, cell=text)
            announce(Summary("working", doing))

        return bench.measure(cell, tell, lambda share: bar(min(1.0, (done + share) / total)))

    try:
        for results in sweep.run(measure):
            bar(min(1.0, len(results) / total))
            send(SWEEP_EVENT, node, {"sweep": sweep_payload(plan, results, total)})
    except BaseException:  # cancelling is one that is no Exception
        kept = phrase("{done} of {total} cells kept: run it again to go on", done=len(results), total=total)
        announce(Summary("partly", kept))
        raise
    chosen = best(results, plan.largest_difference)
    if chosen is not None:
        around = environment(bench.model)
        found = f"{chosen.speedup:.2f}x, difference {chosen.difference:.2f} of a seed change"
        made_on = {name: str(around[name]) for name in ("model", "device", "torch", "comfyui", "date")}
        recipe = Recipe(plan.study, steps_of(chosen.cell), f"Chosen by Benchmark Sweep: {found}.", made_on)
        save_recipe(recipe, user_folder("presets", f"{plan.study}.json"))
    return results, chosen


def summary_of(results: Sequence[Result], chosen: Result | None, plan: SweepPlan, removed: Sequence[str]) -> Summary:
    """Return the result of a sweep; its details are the whole text, with the lines of `plain`."""
    counts, limit = Counter(result.state for result in results), f"{plan.largest_difference:g} of a seed change"
    headline = phrase("no setting is certainly faster within the allowed difference")
    none = f"No cell is certainly faster than the plain model within {limit}, so no preset was saved."
    found = [f"{none} More runs give more certain speed-ups."]
    if chosen is not None:
        cell = describe_cell(chosen.cell)
        headline = phrase("{speedup:.2f}x with {cell}", speedup=chosen.speedup or 0.0, cell=cell)
        found = [f"Fastest within {limit}: {cell}. {chosen.text}"]
        found.append(f"Saved as the preset {plan.study!r} of Optimize (Preset).")
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    plots = f"Plots, and other studies beside this one: {plan.dashboard}"
    lines = (f"{len(results)} cells: {states}.", *found, *removed, plots)
    return Summary("partly" if chosen is None else "active", headline, {"cells": len(results), **counts}, lines)


def sweep_payload(plan: SweepPlan, results: Sequence[Result], total: int, preset: str | None = None) -> Payload:
    """Return ``Sweep`` in web/js/measurements.d.ts; ``preset`` is the saved preset."""
    shown = ("state", "speedup", "low", "high", "difference", "text")
    cells = [
        {"label": describe_cell(one.cell)} | {name: getattr(one, name) for name in shown}
        for one in results[-_MOST_CELLS:]
    ]
    return {"dashboard": plan.dashboard, "total": total, "preset": preset, "cells": cells}


def _job_identity(bench: Bench, source: str) -> dict[str, str]:
    """Return the facts that must be the same for two results in one table, by names that an error can show."""
    job = bench.job
    return {
        "model": describe_model(bench.model),
        "what is connected": source,
        "sampler": f"{job.sampler_name}, {job.scheduler}, {job.steps} steps, cfg {job.cfg:g}, denoise {job.denoise:g}",
        "seed": str(job.seed),
        "runs": f"seeds {bench.plan.least} to {bench.plan.most}",
        "device": device_name(bench.model.load_device),
        "torch": torch.__version__,
        "ComfyUI": host_version(),
    }


def digest_upstream(prompt: dict[str, Any] | None, node: str | None, inputs: tuple[str, ...]) -> str:
    """Return a digest of everything that leads to some inputs of a node, whatever the ids of the nodes are.

    ``prompt`` is a workflow in ComfyUI's API format, None outside of a workflow; ``inputs`` are names.
    """
    if not prompt or node not in prompt:
        return "not from a workflow"
    workflow = Workflow(prompt)
    connected = {**workflow.inputs(node)}
    connected |= {name: [made_of(workflow, origin), slot] for name, (origin, slot) in workflow.links[node].items()}
    return fingerprint_of({name: connected.get(name) for name in inputs})[:16]
