"""A sweep from the first cell to the preset, and what the page shows of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.devices import device_name
from ..core.files import fingerprint_of
from ..core.phrases import phrase
from ..faster.same_work import made_of
from ..faster.workflow import Workflow
from ..optimizers.hosts.comfyui.runtime.paths import user_folder
from ..optimizers.hosts.comfyui.runtime.reporting import Payload
from ..optimizers.hosts.comfyui.structure.model import describe_model
from ..recipes.apply import shown_steps
from ..workbench.comfyui.comparison.report import environment
from ..workbench.comfyui.long_running import progress_bar
from ..workbench.comfyui.machine import host_version
from ..workbench.recipe import Recipe, save_recipe
from ..workbench.sweep.axes import Axes, Cell, describe_cell
from ..workbench.sweep.results import Result, best
from ..workbench.sweep.study import Sweep, SweepPlan
from .sweeps import Bench, steps_of

SWEEP_EVENT = "paceline.sweep"
_MOST_CELLS = 500
"""Of a larger sweep, the page is shown the last ones."""


def run_sweep(
    bench: Bench,
    axes: Axes,
    plan: SweepPlan,
    source: str,
    say: Callable[[str], None],
    watch: Callable[[list[Result], int], None],
) -> tuple[list[Result], Result | None]:
    """Measure all cells that have no result yet; return all, and the one that was saved as a preset.

    ``source`` tells where everything that is connected comes from (:func:`digest_upstream`); ``watch`` is given all
    results and the number of cells, at the start and after each cell.

    Raises:
        InvalidSetting: if the study was begun with other settings.
        BackendUnavailable: without Optuna, or if it cannot use the storage.
    """
    sweep = Sweep(axes, plan, _job_identity(bench, source))
    total, bar = sweep.total, progress_bar()

    def show() -> None:
        found = sweep.results()
        bar(min(1.0, len(found) / total))
        watch(found, total)

    def measure(cell: Cell) -> Result:
        done = len(sweep.results())

        def tell(doing: str) -> None:
            text, number = f"{describe_cell(cell)}: {doing}", min(done + 1, total)
            say(phrase("cell {number} of {total}: {cell}", number=number, total=total, cell=text))

        return bench.measure(cell, tell, lambda share: bar(min(1.0, (done + share) / total)))

    show()
    results = sweep.run(measure, lambda result: show())
    chosen = best(results, plan.largest_difference)
    if chosen is not None:
        around = environment(bench.model)
        found = f"{chosen.speedup:.2f}x, difference {chosen.difference:.2f} of a seed change"
        made_on = {name: str(around[name]) for name in ("model", "device", "torch", "comfyui", "date")}
        recipe = Recipe(plan.study, steps_of(chosen.cell), f"Found by Benchmark Sweep: {found}.", made_on)
        save_recipe(recipe, user_folder("presets", f"{plan.study}.json"))
    return results, chosen


def summary_of(results: Sequence[Result], chosen: Result | None, plan: SweepPlan) -> str:
    """Return what came of a sweep in sentences."""
    states = [result.state for result in results]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    limit = f"{plan.largest_difference:g} of a seed change"
    if chosen is None:
        found = (
            f"No cell is certainly faster than the plain model within {limit}, so no preset was saved. More runs give "
            "more certain speed-ups."
        )
    else:
        found = f"Fastest within {limit}: {describe_cell(chosen.cell)}. {chosen.text}\n"
        found += f"Saved as the preset {plan.study!r} of Optimize (Preset)."
    return (
        f"{len(results)} cells: {counts}.\n{found}\nPlots, and other studies beside this one: {plan.storage.dashboard}"
    )


def sweep_payload(plan: SweepPlan, results: Sequence[Result], total: int, preset: str | None = None) -> Payload:
    """Return what the page shows, ``Sweep`` in web/js/measurements.d.ts; ``preset`` is the one that was saved."""
    cells = [
        {
            "label": describe_cell(one.cell),
            "state": one.state,
            "speedup": one.speedup,
            "low": one.low,
            "high": one.high,
            "difference": one.difference,
            "text": one.text,
            "steps": shown_steps(steps_of(one.cell)),
        }
        for one in results[-_MOST_CELLS:]
    ]
    about = {"study": plan.study, "dashboard": plan.storage.dashboard, "total": total, "preset": preset}
    return {**about, "cells": cells}


def _job_identity(bench: Bench, source: str) -> dict[str, str]:
    """Return what must be the same for two results to stand in one table, by names that an error can show."""
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
    connected |= {name: [made_of(workflow, origin), slot] for name, (origin, slot) in workflow.links(node).items()}
    return fingerprint_of({name: connected.get(name) for name in inputs})[:16]
