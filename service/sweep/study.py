"""The sweep itself: a study of Optuna (https://optuna.org, Akiba et al. 2019), so that it survives a crash.

Each cell is a trial. Those of a grid are added once they are measured: Optuna's own GridSampler counts interrupted ones
as done.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...measure.speedup import SMALLEST_EFFECT
from ...optimizers.core.errors import BackendUnavailable, InvalidSetting, error_line, require_integer, require_number
from ..recipe import Value
from .axes import Axes, Cell, cell_key, cells_of, without_absent


@dataclass(frozen=True)
class Result:
    """One cell and what came of it.

    Attributes:
        state: ``measured``; ``out of memory``, ``not possible`` and ``broken`` (no picture) are results too.
        speedup: median over rounds of baseline time / this one's.
        low: lower end of its 95 % interval, 0 for one that says nothing, None without one; likewise ``high``.
        seconds: median of one sampling step.
        difference: of the pictures, as a share of what another seed changes (0: the same picture).
        text: the verdict in words, or why it was not possible.
    """

    cell: Cell
    state: str
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    difference: float | None = None
    text: str = ""


def best(results: Sequence[Result], largest_difference: float) -> Result | None:
    """Return the fastest result whose difference is at most ``largest_difference`` of a seed change.

    None if nothing within it is certainly faster than the baseline: where there is an interval, all of it must be.
    """
    allowed = [
        one
        for one in results
        if (one.speedup or 0) > 1 + SMALLEST_EFFECT
        and (one.low is None or one.low > 1)
        and one.difference is not None
        and one.difference <= largest_difference
    ]
    return max(allowed, key=lambda one: one.speedup or 0, default=None)


def to_markdown(results: Sequence[Result], chosen: Result | None) -> str:
    """Return a table in Markdown, fastest first; ``chosen`` is the row that became the preset."""
    names = list(dict.fromkeys(name for one in results for name in one.cell))
    rows = [[*names, "speed-up", "s/step", "difference", ""], ["---"] * (len(names) + 4)]
    for one in sorted(results, key=lambda result: -(result.speedup or 0)):
        numbers = zip(("{:.2f}x", "{:.3f}", "{:.3f}"), (one.speedup, one.seconds, one.difference), strict=True)
        measured = ["-" if value is None else how.format(value) for how, value in numbers]
        mark = "the preset" if one is chosen else "" if one.state == "measured" else one.state
        rows.append([*(str(one.cell.get(name, "-")).replace("|", "\\|") for name in names), *measured, mark])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


_RESULT, _JOB = "paceline_result", "paceline_job"

VARIABLE = "PACELINE_SWEEP_STORAGE"
"""With it who starts the server may name another storage of Optuna's: ``postgresql+psycopg://user:password@host/name``."""


@dataclass(frozen=True)
class SweepPlan:
    """How to go through all cells, and what is wanted of them.

    A ``study`` of the same name continues where it stopped; the preset that is saved has its name too. It is kept with
    others in an SQLite ``file``, or where ``VARIABLE`` says: a workflow can come from a stranger, so no input says
    where. ``trials`` is how many cells Optuna chooses in all; with 0 every one is measured once.
    ``largest_difference`` is that of the preset, as a share of a seed change.
    """

    study: str
    file: Path
    trials: int = 0
    largest_difference: float = 0.25

    def __post_init__(self) -> None:
        require_integer("trials", self.trials, 0, 10_000)
        require_number("largest_difference", self.largest_difference, 0.0, 10.0)

    @property
    def named(self) -> str:
        """The storage that the server was started with, which may hold a password; empty for the file."""
        return os.environ.get(VARIABLE, "")

    @property
    def storage(self) -> str:
        """The storage as Optuna names it, which takes a file's name for a format string."""
        return self.named or f"sqlite:///{self.file}".replace("{", "{{").replace("}", "}}")

    @property
    def dashboard(self) -> str:
        """The command that shows its studies."""
        return f'optuna-dashboard "{f"${VARIABLE}" if self.named else self.storage}"'


class Sweep:
    """A study that is open.

    ``job`` is what all cells have in common (model, prompt, sampler, rounds, ...). Raises `BackendUnavailable` without
    Optuna, or if it cannot use the storage, `InvalidSetting` if the study holds results of another job.
    """

    def __init__(self, axes: Axes, plan: SweepPlan, job: dict[str, str]) -> None:
        self._optuna = _import_optuna()
        if not plan.named:
            with suppress(OSError):  # Optuna says that it cannot open the file
                plan.file.parent.mkdir(parents=True, exist_ok=True)
        self._plan = plan
        self._cells = {} if plan.trials else {cell_key(cell): cell for cell in cells_of(axes)}
        self._distributions = {name: self._distribution(values) for name, values in axes.items()}
        job = {"which cells": "Optuna's choice" if plan.trials else "all", **job}
        for name, one in self._distributions.items():
            job[name] = ", ".join(map(str, one.choices)) if hasattr(one, "choices") else "numbers"
        with self._using():
            self._study = self._optuna.create_study(
                study_name=plan.study,
                storage=plan.storage,
                directions=["maximize", "minimize"],
                sampler=self._optuna.samplers.TPESampler(multivariate=True),
                load_if_exists=True,
            )
            known = self._study.user_attrs.get(_JOB, {})
        changed = [name for name in job if known.get(name, job[name]) != job[name]]
        if changed:
            changes = "; ".join(f"{name} was {known[name]}, is {job[name]}" for name in changed)
            raise InvalidSetting(
                f"The study {plan.study!r} was begun with other settings: {changes}.",
                "Choose another name, or restore the settings to go on with it.",
            )
        with self._using():
            self._study.set_user_attr(_JOB, {**known, **job})
            self._study.set_metric_names(["speed-up", "difference"])

    @property
    def total(self) -> int:
        return len(self._cells) or self._plan.trials

    def run(self, measure: Callable[[Cell], Result]) -> Iterator[list[Result]]:
        """Measure what is left; yield all results, in the order of the grid or oldest first, now and after each cell.

        What ``measure`` raises stops the sweep; the cell is measured again the next time.
        """
        yield self._results()
        for key, cell in self._cells.items():
            if key not in self._found():
                result = measure(cell)
                with self._using():
                    told = {"user_attrs": {_RESULT: asdict(result)}, **self._outcome(result)}
                    distributions = {name: self._distributions[name] for name in cell}
                    self._study.add_trial(self._optuna.create_trial(params=cell, distributions=distributions, **told))
                yield self._results()
        while len(self._measured()) < self._plan.trials:
            with self._using():
                trial = self._study.ask(self._distributions)
            cell = without_absent(trial.params)
            result = self._found().get(cell_key(cell)) or measure(cell)
            with self._using():
                trial.set_user_attr(_RESULT, asdict(result))
                self._study.tell(trial, **self._outcome(result))
            yield self._results()

    def _outcome(self, result: Result) -> dict[str, Any]:
        values = [result.speedup, result.difference]
        return {"state": self._optuna.trial.TrialState.PRUNED} if None in values else {"values": values}

    def _distribution(self, values: tuple[Value, ...]) -> Any:
        """Return Optuna's distribution of an axis. Within a study it lets numbers become more, but no choices."""
        kinds, numbers = self._optuna.distributions, [value for value in values if type(value) in (int, float)]
        if self._cells and len(numbers) == len(values):
            return kinds.FloatDistribution(min(numbers), max(numbers))
        return kinds.CategoricalDistribution(sorted(values, key=str))

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Turn what Optuna raises into `BackendUnavailable`, in its own words for a file; let it log errors only."""
        before = self._optuna.logging.get_verbosity()
        self._optuna.logging.set_verbosity(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
                yield
        except Exception as error:
            cause = error.__cause__ or error
            # The words can hold the password of a storage.
            kind = f"{type(cause).__name__}, with {VARIABLE}"
            told = kind if self._plan.named else error_line(cause, named=True)
            raise BackendUnavailable(
                f"Optuna cannot use the storage of the study: {told.rstrip('.')}.",
                "Finished cells are kept: run the workflow again when it works. A damaged file can be moved away.",
            ) from None
        finally:
            self._optuna.logging.set_verbosity(before)

    def _measured(self) -> list[Result]:
        with self._using():
            trials = self._study.get_trials(deepcopy=False)
        return [Result(**trial.user_attrs[_RESULT]) for trial in trials if _RESULT in trial.user_attrs]

    def _found(self) -> dict[str, Result]:
        return {cell_key(result.cell): result for result in self._measured()}

    def _results(self) -> list[Result]:
        found = self._found()
        return [found[key] for key in self._cells or found if key in found]


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise BackendUnavailable(
            f"Benchmark Sweep needs Optuna, which cannot be imported ({error}).",
            "Run `pip install optuna` with ComfyUI's Python.",
        ) from error
    return optuna
