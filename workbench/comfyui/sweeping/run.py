"""Run a sweep from the first cell to the files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image

from ....core.errors import InvalidSetting, require_number
from ....core.phrases import joined, phrase, translatable
from ....optimizers.hosts.comfyui.paths import user_folder
from ...recipe import PRESET_NAME, Recipe, save_recipe
from ...sweep import (
    Cell,
    Range,
    Result,
    Space,
    Storage,
    SweepSettings,
    best,
    open_sweep,
    pareto_front,
    pareto_picture,
    to_csv,
    to_markdown,
)
from ..comparison import Progress, environment
from ..long_running import ProgressBar, stop_if_cancelled
from ..output_files import Entry, OutputFiles
from .cells import Bench
from .identity import job_identity
from .saving import save_sweep

_PER_CELL = 1000
"""Ticks of the progress bar for each cell."""


def require_preset_name(what: str, name: str, taken: tuple[str, ...]) -> str:
    """Return ``name`` if a preset can have it.

    Raises:
        InvalidSetting: naming what cannot be in it, or the names that are taken.
    """
    if not PRESET_NAME.fullmatch(name) or name.strip() != name or name in taken:
        raise InvalidSetting(
            phrase("{what} is {name}, which cannot be the name of a preset.", what=what, name=repr(name)),
            phrase(
                "Use letters, digits, spaces and . _ - + ( ), not starting with a dot, and not {taken}.",
                taken=", ".join(taken),
            ),
        )
    return name


@dataclass(frozen=True)
class SweepPlan:
    """What to do besides measuring.

    Attributes:
        study: name; the same one continues where it stopped, and is the name of the preset.
        taken: names of presets that a study cannot have.
        storage: where results are kept.
        mode: ``grid`` or ``search``.
        trials: cells of a search.
        largest_difference: of a preset, as a share of a seed change.
        prefix: start of the names of the files.
        keep: whether the files are kept; see :class:`OutputFiles`.
    """

    study: str
    taken: tuple[str, ...]
    storage: Storage
    mode: str = "grid"
    trials: int = 20
    largest_difference: float = 0.25
    prefix: str = "paceline/sweep"
    keep: bool = True

    def __post_init__(self) -> None:
        """Check what would otherwise only be found after all the work."""
        require_preset_name("study", self.study, self.taken)
        require_number("largest_difference", self.largest_difference, 0.0, 10.0)

    def settings(self) -> SweepSettings:
        """Return how the sweep goes through its space."""
        return SweepSettings(self.study, self.storage.url, self.mode, self.trials)


@dataclass(frozen=True)
class Finished:
    """What a sweep gave.

    Attributes:
        results: of all processes that took part.
        table: for people, in Markdown.
        best: the result that became the preset; None if none is faster within the allowed difference.
        preset: its file.
        files: descriptions of what was written, as ComfyUI's front end wants them.
        picture: the plot.
        lines: the summary.
    """

    results: list[Result]
    table: str
    best: Result | None
    preset: Path | None
    files: dict[str, Entry]
    picture: Image.Image
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The summary in one piece."""
        return "\n".join(self.lines)


def run_sweep(
    bench: Bench,
    space: Space,
    plan: SweepPlan,
    source: str,
    say: Callable[[str], None] = lambda text: None,
    workflow: dict[str, object] | None = None,
    watch: Callable[[list[Result], int], None] = lambda results, total: None,
) -> Finished:
    """Measure all cells that have no result yet, and write plot, tables and preset.

    Args:
        bench: what is measured.
        space: the settings.
        plan: see there.
        source: where everything that is connected comes from; see :func:`..identity.upstream`.
        say: told what is going on.
        workflow: what to put into the plot's file.
        watch: given all results so far and the number of cells, at the start and after each cell.

    Raises:
        InvalidSetting: for sizes that this model does not have, or if the study was begun with other settings.
        BackendUnavailable: without Optuna, for a search or a shared storage.
    """
    OutputFiles(plan.prefix, plan.keep)  # a bad one should not be found after all the work
    for cell in _corners(space):
        bench.check(cell)
    sweep = open_sweep(space, plan.settings(), job_identity(bench, source))
    done, total, started = [len(sweep.results())], sweep.total, [0]
    bar = _Bar(total)

    def measure(cell: Cell) -> Result:
        started[0] += 1
        number = min(done[0] + 1, total)
        title = joined(": ", [phrase("cell {number} of {total}", number=number, total=total), describe_cell(cell)])
        say(title)
        return bench.measure(cell, lambda text: say(joined(": ", [title, text])), bar.cell(done[0]))

    def finish(result: Result) -> None:
        found = sweep.results()
        done[0] = len(found)
        watch(found, total)
        bar.show(done[0])
        outcome = joined(": ", [translatable(result.state), result.text])
        if result.speedup is not None:
            outcome = phrase("{speedup:.2f}x", speedup=result.speedup)
        say(joined(": ", [describe_cell(result.cell), outcome]))

    def idle() -> None:
        stop_if_cancelled()
        done[0] = len(sweep.results())
        bar.show(done[0])
        say(
            phrase(
                "{done} of {total} cells measured; waiting for cells that other processes measure",
                done=done[0],
                total=total,
            )
        )

    bar.show(done[0])
    watch(sweep.results(), total)
    results = sweep.run(measure, finish, idle)
    chosen = best(results, plan.largest_difference)
    preset = _save_preset(chosen, bench, plan) if chosen is not None else None
    picture = pareto_picture(results, f"{plan.study}: {environment(bench.model)['device']}", plan.largest_difference)
    content = {
        "study": plan.study,
        "storage": plan.storage.title,
        "plan": {"mode": plan.mode, "trials": plan.trials, "largest_difference": plan.largest_difference},
        "job": job_identity(bench, source),
        "surroundings": environment(bench.model),
        "measured_now": started[0],
        "results": [asdict(result) for result in results],
        "best_trades": [results.index(result) for result in pareto_front(results)],
        "preset": None if preset is None else {"name": preset.stem, **asdict(chosen)} if chosen else None,
    }
    table = to_markdown(results)
    lines = _summary(results, total, chosen, plan)
    text = "\n".join(lines)
    tables = {"csv": to_csv(results), "md": f"# {plan.study}\n\n{text}\n\n{table}"}
    files = save_sweep(content, picture, tables, plan.prefix, workflow, plan.keep)
    return Finished(results, table, chosen, preset, files, picture, tuple(lines))


class _Bar:
    """The node's progress bar: cells, and within a cell its steps."""

    def __init__(self, cells: int) -> None:
        self._bar = ProgressBar(cells * _PER_CELL)

    def show(self, cells: int) -> None:
        self._bar.show(cells * _PER_CELL)

    def cell(self, before: int) -> Progress:
        """Return the progress of a comparison that begins when ``before`` cells are done."""

        def begin(steps: int) -> Callable[[], None]:
            done = 0

            def advance() -> None:
                nonlocal done
                stop_if_cancelled()
                done += 1
                self._bar.show(before * _PER_CELL + round(_PER_CELL * done / max(1, steps)))

            return advance

        return begin


def describe_cell(cell: Cell) -> str:
    """Return e.g. ``ratio 0.5, size 512``."""
    return ", ".join(f"{name.rpartition('.')[2]} {'none' if value == '' else value}" for name, value in cell.items())


def _corners(space: Space) -> list[Cell]:
    """Return cells that have every size and batch of a space."""
    pictures = {name: values for name, values in space.values.items() if name in ("size", "batch")}
    if not pictures or any(isinstance(values, Range) for values in pictures.values()):
        return []
    return Space(pictures).cells()


def _save_preset(chosen: Result, bench: Bench, plan: SweepPlan) -> Path:
    around = environment(bench.model)
    measure = job_identity(bench, "")["difference in"]
    picture = ", ".join(f"{name} {chosen.cell[name]}" for name in ("size", "batch") if name in chosen.cell)
    recipe = Recipe(
        plan.study,
        bench.steps_of(chosen.cell),
        f"Found by Benchmark Sweep: {chosen.speedup:.2f}x, difference {chosen.difference:.2f} of a seed change "
        f"({measure}){' at ' + picture if picture else ''}.",
        {name: str(around[name]) for name in ("model", "device", "torch", "comfyui", "date")},
    )
    path = user_folder("presets", f"{plan.study}.json")
    save_recipe(recipe, path)
    return path


def _summary(results: list[Result], total: int, chosen: Result | None, plan: SweepPlan) -> list[str]:
    states = [result.state for result in results]
    counts = joined(
        ", ",
        (phrase("{count} {state}", count=states.count(one), state=translatable(one)) for one in dict.fromkeys(states)),
    )
    lines: list[str] = [phrase("{done} of {total} cells: {counts}.", done=len(results), total=total, counts=counts)]
    limit = phrase("{share:g} of a seed change", share=plan.largest_difference)
    if chosen is None:
        lines.append(
            phrase(
                "No cell is certainly faster than the plain model within {limit}, so no preset was saved. More runs "
                "give more certain speed-ups.",
                limit=limit,
            )
        )
    else:
        cell = describe_cell(chosen.cell)
        lines.append(phrase("Fastest within {limit}: {cell}. {text}", limit=limit, cell=cell, text=chosen.text))
        lines.append(phrase("Saved as the preset {name} of Optimize (Preset).", name=repr(plan.study)))
    return lines
