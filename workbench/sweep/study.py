"""The sweep itself: an Optuna study, so that it survives a crash and can be shared by many machines.

Optuna (https://optuna.org, Akiba et al. 2019) hands a cell to one process at a time, and takes back those of processes
that have died. The cells of a grid are trials in its queue, as GridSampler draws them at random, counts interrupted
ones as done, begins anew when the grid grows, and gives the last cells to several processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from ...core.errors import InvalidSetting, require_choice, require_integer
from .results import Result
from .space import Cell, Range, Space, cell_key, without_absent
from .storage import Storage, import_optuna, open_storage, using

_RESULT, _JOB, _KEY, _BEGUN = "paceline_result", "paceline_job", "paceline_cell", "paceline_begun"
MODES = ("grid", "search")

Outcome = Callable[[Cell], Result]
"""Measures one cell. Whatever it raises stops the sweep; the cell is measured again the next time."""


@dataclass(frozen=True)
class SweepSettings:
    """How to go through a space.

    A ``study`` of the same name continues where it stopped. ``mode`` is ``grid``, every cell once, or ``search``, where
    Optuna's sampler chooses ``trials`` cells in all, over all processes.
    """

    study: str
    storage: Storage
    mode: str = "grid"
    trials: int = 20

    def __post_init__(self) -> None:
        require_choice("mode", self.mode, MODES)
        require_integer("trials", self.trials, 1, 100_000)


class Sweep:
    """A study that is open.

    ``job`` is what all cells have in common (model, prompt, sampler, rounds, ...). A study never mixes two jobs.

    Raises:
        BackendUnavailable: if Optuna is not installed, or the database cannot be used.
        InvalidSetting: if the study exists and holds results of another job or another space.
    """

    def __init__(self, space: Space, settings: SweepSettings, job: dict[str, Any]) -> None:
        self._optuna = import_optuna()
        self._states = self._optuna.trial.TrialState
        self._space, self._settings = space, settings
        self._cells = {cell_key(cell): cell for cell in space.cells()} if settings.mode == "grid" else {}
        with using(self._optuna):
            self._study = self._open(_identity(space, settings, job))

    @property
    def total(self) -> int:
        return len(self._cells) or self._settings.trials

    def results(self) -> list[Result]:
        """Return what has been measured so far, by all processes: in the order of the grid, or oldest first."""
        found = self._found()
        if not self._cells:
            return list(found.values())
        # The same name may have served for a larger grid before.
        return [found[key] for key in self._cells if key in found]

    def run(
        self,
        measure: Outcome,
        done: Callable[[Result], None] = lambda result: None,
        idle: Callable[[], None] = lambda: None,
    ) -> list[Result]:
        """Measure what is left and return all results.

        ``done`` is called after each cell of this process, ``idle`` about once a second while only others have cells to
        measure; it may raise to stop.
        """
        with using(self._optuna):
            while not self._is_done():
                if self._cells and not self._trials(self._states.WAITING):
                    self._take_back()
                    self._enqueue_missing()
                    if not self._trials(self._states.WAITING):  # the last cells are in the hands of others
                        idle()
                        time.sleep(1.0)
                        continue
                self._study.optimize(lambda trial: self._objective(trial, measure, done), n_trials=1)
        return self.results()

    def _open(self, identity: dict[str, str]) -> Any:
        optuna, name = self._optuna, self._settings.study
        storage = open_storage(optuna, self._settings.storage)
        sampler = optuna.samplers.TPESampler(seed=0, multivariate=True, group=True)
        try:
            self._study = optuna.create_study(
                study_name=name, storage=storage, directions=["maximize", "minimize"], sampler=sampler
            )
        except optuna.exceptions.DuplicatedStudyError:
            self._study = optuna.load_study(study_name=name, storage=storage, sampler=sampler)
            deadline = time.monotonic() + 60
            while _JOB not in self._study.user_attrs and time.monotonic() < deadline:
                time.sleep(0.1)  # the process that has made it is still filling it
        _require_same_job(name, self._study.user_attrs.get(_JOB, identity), identity)
        self._take_back()
        self._enqueue_missing()
        self._study.set_user_attr(_JOB, identity)
        return self._study

    def _trials(self, *states: Any) -> list[Any]:
        found: list[Any] = self._study.get_trials(deepcopy=False, states=states or None)
        return found

    def _found(self) -> dict[str, Result]:
        with using(self._optuna):
            trials = self._trials()
        found: dict[str, Result] = {}
        for trial in trials:
            if _RESULT in trial.user_attrs:
                result = Result(**trial.user_attrs[_RESULT])
                found.setdefault(cell_key(result.cell), replace(result, cell=self._in_order(result.cell)))
        return found

    def _is_done(self) -> bool:
        if self._cells:
            return len(self.results()) >= self.total
        return sum(_RESULT in trial.user_attrs for trial in self._trials()) >= self.total

    def _take_back(self) -> None:
        """End the trials of processes that have died; their cells are missing then."""
        self._optuna.storages.fail_stale_trials(self._study)
        for trial in self._trials(self._states.RUNNING):
            # Killed before its first heartbeat, which Optuna would wait for.
            age = (datetime.now() - trial.datetime_start).total_seconds()
            if _BEGUN not in trial.user_attrs and age > 3 * self._settings.storage.heartbeat:
                with suppress(ValueError):  # another process was quicker
                    self._study.tell(trial.number, state=self._states.FAIL)

    def _taken(self, trials: list[Any]) -> set[str | None]:
        """Return the keys of cells that are measured, that wait, or that a process measures now."""
        states = (self._states.WAITING, self._states.RUNNING)
        return {one.user_attrs.get(_KEY) for one in trials if _RESULT in one.user_attrs or one.state in states}

    def _enqueue_missing(self) -> None:
        taken = self._taken(self._trials())
        for key, cell in self._cells.items():
            if key not in taken:
                self._study.enqueue_trial(cell, user_attrs={_KEY: key})

    def _objective(self, trial: Any, measure: Outcome, done: Callable[[Result], None]) -> tuple[float, float]:
        trial.set_user_attr(_BEGUN, True)
        cell = self._cell_of(trial)
        known = self._found().get(cell_key(cell))  # a search may ask again
        try:
            result = known or measure(cell)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException:  # ComfyUI's cancelling is one; Optuna would leave the cell taken
            self._study.tell(trial.number, state=self._states.FAIL)
            raise
        trial.set_user_attr(_RESULT, asdict(result))
        done(result)
        if result.speedup is None or result.difference is None:
            raise self._optuna.TrialPruned
        return result.speedup, result.difference

    def _cell_of(self, trial: Any) -> Cell:
        """Return the cell that a trial is to measure.

        ``TrialPruned`` if another process has taken the last cell of the queue between our look and our turn, if two of
        them have queued the same cell, or if it was queued for another grid of the same name.
        """
        if not self._cells:
            return self._suggest(trial)
        key = trial.user_attrs.get(_KEY)
        if key not in self._cells or key in self._taken(self._trials()[: trial.number]):
            raise self._optuna.TrialPruned
        return self._cells[key]

    def _in_order(self, cell: Cell) -> Cell:
        """Return ``cell`` with its names in the order of the space, which a storage does not keep."""
        return {name: cell[name] for name in self._space.values if name in cell}

    def _suggest(self, trial: Any) -> Cell:
        cell: Cell = {}
        # Switches first: settings of a node that is off are not asked for, so that the sampler does not learn noise.
        for name in sorted(self._space.values, key=lambda name: "." in name):
            values = self._space.values[name]
            if "." in name and without_absent({**cell, name: ""}).keys() == cell.keys():
                continue
            if isinstance(values, Range) and values.whole:
                cell[name] = trial.suggest_int(name, int(values.low), int(values.high))
            elif isinstance(values, Range):
                cell[name] = trial.suggest_float(name, values.low, values.high)
            else:
                cell[name] = trial.suggest_categorical(name, values)
        return self._in_order(cell)


def _require_same_job(study: str, known: dict[str, str], identity: dict[str, str]) -> None:
    changed = [name for name in {**known, **identity} if known.get(name) != identity.get(name)]
    if changed:
        changes = "; ".join(f"{name} was {known.get(name)}, is {identity.get(name)}" for name in changed)
        raise InvalidSetting(
            f"The study {study!r} was begun with other settings: {changes}.",
            "Choose another name, or restore the settings to go on with it.",
        )


def _identity(space: Space, settings: SweepSettings, job: dict[str, Any]) -> dict[str, str]:
    identity = {"mode": settings.mode, **{name: str(value) for name, value in job.items()}}
    # A grid may grow: its cells stand for themselves. A search's space may not, as the sampler learns from all of it.
    if settings.mode == "search":
        values = {name: asdict(v) if isinstance(v, Range) else list(v) for name, v in space.values.items()}
        identity["space"] = json.dumps(values, sort_keys=True)
    return identity
