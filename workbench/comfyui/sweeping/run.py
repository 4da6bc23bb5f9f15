"""Run a sweep from the first cell to the files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ....core.devices import device_name
from ....core.files import fingerprint_of
from ....core.phrases import phrase
from ....optimizers.hosts.comfyui.model import describe_model
from ....optimizers.hosts.comfyui.paths import user_folder
from ...recipe import Recipe, save_recipe
from ...sweep.axes import Axes, Cell, Range, describe_cell
from ...sweep.plot import pareto_picture
from ...sweep.results import Result, best, pareto_front, to_csv, to_markdown
from ...sweep.study import Sweep, SweepPlan
from ..comparison import environment
from ..long_running import progress_bar
from ..machine import host_version
from ..output_files import Entry, OutputFiles
from ..workflow import Workflow
from .cells import Bench


@dataclass(frozen=True)
class Finished:
    """What a sweep gave, to all processes that took part.

    ``best`` is the result that became the ``preset``, None if none is faster within the allowed difference; ``table``
    is Markdown, ``files`` are descriptions as ComfyUI's front end wants them.
    """

    results: list[Result]
    table: str
    best: Result | None
    preset: Path | None
    files: dict[str, Entry]
    picture: Image.Image
    text: str


def run_sweep(
    bench: Bench,
    axes: Axes,
    plan: SweepPlan,
    source: str,
    output: OutputFiles,
    say: Callable[[str], None] = lambda text: None,
    workflow: dict[str, object] | None = None,
    watch: Callable[[list[Result], int], None] = lambda results, total: None,
) -> Finished:
    """Measure all cells that have no result yet, and write plot, tables and preset; ``output`` takes the files.

    ``source`` tells where everything that is connected comes from (:func:`upstream`); ``workflow`` goes into
    the plot's file; ``watch`` is given all results and the number of cells, at the start and after each cell.

    Raises:
        InvalidSetting: for sizes that this model does not have, or if the study was begun with other settings.
        BackendUnavailable: without Optuna, or if the database cannot be used.
    """
    for cell in _corners(axes):
        bench.latent(cell)  # which checks its size
    job = job_identity(bench, source)
    sweep = Sweep(axes, plan, job)
    total, started = sweep.total, 0
    bar = progress_bar()

    def show() -> None:
        found = sweep.results()
        bar(min(1.0, len(found) / total))
        watch(found, total)

    def measure(cell: Cell) -> Result:
        nonlocal started
        started += 1
        done = len(sweep.results())

        def tell(doing: str) -> None:
            cell_text = f"{describe_cell(cell)}: {doing}".removesuffix(": ")
            number = min(done + 1, total)
            say(phrase("cell {number} of {total}: {cell}", number=number, total=total, cell=cell_text))

        tell("")
        return bench.measure(cell, tell, lambda share: bar(min(1.0, (done + share) / total)))

    def finish(result: Result) -> None:
        show()
        outcome = f"{result.state}: {result.text}" if result.speedup is None else f"{result.speedup:.2f}x"
        say(f"{describe_cell(result.cell)}: {outcome}")

    show()
    results = sweep.run(measure, finish)
    watch(results, total)
    around = environment(bench.model)
    chosen = best(results, plan.largest_difference)
    preset = None if chosen is None else _save_preset(chosen, bench, plan.study, around)
    picture = pareto_picture(results, f"{plan.study}: {around['device']}", plan.largest_difference)
    table, text = to_markdown(results), _summary(results, total, chosen, plan)
    content = {
        "study": plan.study,
        "storage": plan.storage.title,
        "plan": {"mode": plan.mode, "trials": plan.trials, "largest_difference": plan.largest_difference},
        "job": job,
        "surroundings": around,
        "measured_now": started,
        "results": [asdict(result) for result in results],
        "best_trades": [results.index(result) for result in pareto_front(results)],
        "preset": None if chosen is None else {"name": plan.study, **asdict(chosen)},
    }
    files = {
        # The number of the files goes by the names of pictures, so the plot is the first.
        "plot": output.save_picture(".png", picture, workflow),
        "json": output.save_json(".json", content),
        "csv": output.save_text(".csv", to_csv(results)),
        "md": output.save_text(".md", f"# {plan.study}\n\n{text}\n\n{table}"),
    }
    return Finished(results, table, chosen, preset, files, picture, text)


def _corners(axes: Axes) -> list[Cell]:
    pictures = {name: values for name, values in axes.values.items() if name in ("size", "batch")}
    if not pictures or any(isinstance(values, Range) for values in pictures.values()):
        return []
    return Axes(pictures).cells()


def _save_preset(chosen: Result, bench: Bench, study: str, around: dict[str, object]) -> Path:
    picture = ", ".join(f"{name} {chosen.cell[name]}" for name in ("size", "batch") if name in chosen.cell)
    recipe = Recipe(
        study,
        bench.steps_of(chosen.cell),
        f"Found by Benchmark Sweep: {chosen.speedup:.2f}x, difference {chosen.difference:.2f} of a seed change"
        f"{' at ' + picture if picture else ''}.",
        {name: str(around[name]) for name in ("model", "device", "torch", "comfyui", "date")},
    )
    path = user_folder("presets", f"{study}.json")
    save_recipe(recipe, path)
    return path


def _summary(results: list[Result], total: int, chosen: Result | None, plan: SweepPlan) -> str:
    states = [result.state for result in results]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    lines = [f"{len(results)} of {total} cells: {counts}."]
    limit = f"{plan.largest_difference:g} of a seed change"
    if chosen is None:
        lines.append(
            f"No cell is certainly faster than the plain model within {limit}, so no preset was saved. More runs give "
            "more certain speed-ups."
        )
    else:
        lines.append(f"Fastest within {limit}: {describe_cell(chosen.cell)}. {chosen.text}")
        lines.append(f"Saved as the preset {plan.study!r} of Optimize (Preset).")
    return "\n".join(lines)


def job_identity(bench: Bench, source: str) -> dict[str, str]:
    """Return what must be the same for two results to stand in one table, by names that an error can show.

    For ``source`` see :func:`upstream`.
    """
    job = bench.job
    least, most = bench.settings.rounds(job.prompts)
    return {
        "model": describe_model(bench.model),
        "what is connected": source,
        "sampler": f"{job.sampler_name}, {job.scheduler}, {job.steps} steps, cfg {job.cfg:g}, denoise {job.denoise:g}",
        "seed": str(job.seed),
        "runs": f"seeds {least} to {most}, after {bench.settings.warmup_runs}",
        "device": device_name(bench.model.load_device),
        "torch": torch.__version__,
        "ComfyUI": host_version(),
        "difference in": "RMSE",  # earlier versions could judge by LPIPS
    }


def upstream(prompt: dict[str, Any] | None, node: str | None, inputs: tuple[str, ...]) -> str:
    """Return a digest of everything that leads to some inputs of a node, whatever the ids of the nodes are.

    ``prompt`` is a workflow in ComfyUI's API format, None outside of a workflow; ``inputs`` are names.
    """
    if not prompt or node not in prompt:
        return "not from a workflow"
    workflow, known = Workflow(prompt), dict[str, str]()

    def digest(id: str) -> str:
        if id not in known:
            known[id] = fingerprint_of([workflow.type(id), given(id)])
        return known[id]

    def given(id: str) -> dict[str, object]:
        links = {name: [digest(origin), slot] for name, (origin, slot) in workflow.links(id).items()}
        return {**workflow.inputs(id), **links}

    connected = given(node)
    return fingerprint_of({name: connected.get(name) for name in inputs})[:16]
