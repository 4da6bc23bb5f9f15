"""The sweep itself: an Optuna study, so that it survives a crash and can be shared by many machines.

Everything that has to do with storing, resuming and sharing is Optuna's (https://optuna.org, Akiba et al. 2019):
its storage hands a cell to one process at a time, and takes back the cells of processes that have died.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from ...core.errors import InvalidSetting, require_choice, require_integer
from ...core.phrases import data, joined, phrase, restored, translatable
from .results import FINISHED, Result
from .space import Cell, Range, Space, cell_key, without_absent
from .storage import import_optuna, is_alive, open_storage, quiet, this_machine, without_credentials

_RESULT, _JOB, _KEY, _READY = "paceline_result", "paceline_job", "paceline_cell", "paceline_ready"
_OWNER, _PHRASE = "paceline_owner", "paceline_phrase"
MODES = ("grid", "search")

Outcome = Callable[[Cell], Result]
"""Measures one cell. Whatever it raises stops the sweep; the cell is measured again the next time."""


@dataclass(frozen=True)
class SweepSettings:
    """How to go through a space.

    Attributes:
        name: of the study; the same name continues where it stopped.
        storage: a database URL of SQLAlchemy: ``sqlite:///file``, ``postgresql+psycopg://user@host/name``, ...
            Processes with the same URL and name share the work.
        mode: ``grid``, every cell once; ``search``, Optuna's sampler chooses.
        trials: how many cells a search measures in all, over all processes.
        seed: of the search's sampler.
        heartbeat: seconds between two signs of life; after three without one, a cell is given to another process.
    """

    name: str
    storage: str = field(repr=False)
    mode: str = "grid"
    trials: int = 20
    seed: int = 0
    heartbeat: int = 20

    def __post_init__(self) -> None:
        """Check the values."""
        require_choice("mode", self.mode, MODES)
        require_integer("trials", self.trials, 1, 100_000)
        require_integer("heartbeat", self.heartbeat, 1, 3600)
        if not self.name.strip():
            remedy = translatable("Give it one; the same name resumes it.")
            raise InvalidSetting(translatable("The study has no name."), remedy)


class _Stopped(Exception):
    """Carries what is no ``Exception`` through Optuna, which then gives the cell back."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(repr(reason))
        self.reason = reason


class Sweep:
    """A study that is open.

    Args:
        space: what to go through.
        settings: how.
        job: what all cells have in common (model, prompt, sampler, rounds, ...). A study never mixes two jobs.

    Raises:
        BackendUnavailable: if Optuna is not installed.
        InvalidSetting: if the study exists and holds results of another job or another space.
    """

    def __init__(self, space: Space, settings: SweepSettings, job: dict[str, Any]) -> None:
        self._optuna = import_optuna()
        self._space, self._settings = space, settings
        self._cells = space.cells() if settings.mode == "grid" else []
        with quiet(self._optuna), without_credentials(self._optuna):
            self._study = self._open(identity_of(space, settings, job))

    @property
    def total(self) -> int:
        """How many cells the sweep has when it is done."""
        return len(self._cells) or self._settings.trials

    def results(self) -> list[Result]:
        """Return what has been measured so far, by all processes, oldest first."""
        found: dict[str, Result] = {}
        with without_credentials(self._optuna):
            trials = self._study.get_trials(deepcopy=False)
        for trial in trials:
            if _RESULT in trial.user_attrs:
                stored = Result(**trial.user_attrs[_RESULT])
                text = restored(stored.text, trial.user_attrs.get(_PHRASE))
                stored = replace(stored, cell=self._in_order(stored.cell), text=text)
                found.setdefault(cell_key(stored.cell), stored)
        if not self._cells:
            return list(found.values())
        # The same name may have served for a larger grid before.
        return [found[key] for key in map(cell_key, self._cells) if key in found]

    def run(
        self,
        measure: Outcome,
        done: Callable[[Result], None] = lambda result: None,
        idle: Callable[[], None] = lambda: None,
    ) -> list[Result]:
        """Measure what is left and return all results.

        Args:
            measure: measures a cell.
            done: called after each cell of this process.
            idle: called about once a second while only others have cells to measure; may raise to stop.
        """
        objective = self._objective(measure, done)
        with quiet(self._optuna), without_credentials(self._optuna):
            while not self._is_done(idle):
                try:
                    self._study.optimize(objective, n_trials=1)
                except _Stopped as stopped:
                    raise stopped.reason from None
        return self.results()

    def _open(self, identity: dict[str, str]) -> Any:
        settings, optuna = self._settings, self._optuna
        storage = open_storage(optuna, settings.storage, settings.heartbeat)
        directions = ["maximize", "minimize"]
        sampler = optuna.samplers.TPESampler(seed=settings.seed, multivariate=True, group=True)
        try:
            study = optuna.create_study(
                study_name=settings.name, storage=storage, directions=directions, sampler=sampler
            )
        except optuna.exceptions.DuplicatedStudyError:
            study = optuna.load_study(study_name=settings.name, storage=storage, sampler=sampler)
            _wait_until(lambda: _READY in study.user_attrs, 60)  # the process that made it may still be filling it
        known = study.user_attrs.get(_JOB)
        if known is None:
            study.set_user_attr(_JOB, identity)
        else:
            require_same_job(settings.name, known, identity)
        self._release_cells_of_the_dead(study)
        self._enqueue_missing(study)
        study.set_user_attr(_READY, True)
        return study

    def _release_cells_of_the_dead(self, study: Any) -> None:
        """Give back at once the cells of processes of this machine that were killed; the others' wait for no beat."""
        state = self._optuna.trial.TrialState
        for trial in study.get_trials(deepcopy=False, states=(state.RUNNING,)):
            where, _, process = str(trial.user_attrs.get(_OWNER, "")).rpartition(" ")
            # Killed before it could say whose the cell is: before its first beat too, so that Optuna waits for ever.
            age = (datetime.now() - trial.datetime_start).total_seconds() if trial.datetime_start else 0.0
            nobody = not where and age > 3 * self._settings.heartbeat
            if nobody or (where == this_machine() and not is_alive(int(process))):
                with suppress(ValueError):  # another process was quicker
                    study.tell(trial.number, state=state.FAIL)

    def _enqueue_missing(self, study: Any) -> None:
        """Queue the cells that no process has finished, waits for or works on."""
        state = self._optuna.trial.TrialState
        taken = {
            trial.user_attrs.get(_KEY)
            for trial in study.get_trials(deepcopy=False)
            if trial.state in (state.COMPLETE, state.PRUNED, state.WAITING, state.RUNNING)
        }
        for cell in self._cells:
            if cell_key(cell) not in taken:
                study.enqueue_trial(cell, user_attrs={_KEY: cell_key(cell)})

    def _is_done(self, idle: Callable[[], None]) -> bool:
        if len(self.results()) >= self.total:
            return True
        if self._settings.mode == "search":
            return False
        state = self._optuna.trial.TrialState
        # The last cells may be in the hands of others, or of a process that has died: look again later.
        if not self._study.get_trials(deepcopy=False, states=(state.WAITING,)):
            self._optuna.storages.fail_stale_trials(self._study)
            self._release_cells_of_the_dead(self._study)
            idle()
            self._sleep_while_others_work()
        return False

    def _sleep_while_others_work(self) -> None:
        state = self._optuna.trial.TrialState
        if not self._study.get_trials(deepcopy=False, states=(state.WAITING,)):
            time.sleep(min(1.0, self._settings.heartbeat / 2))
            if not self._study.get_trials(deepcopy=False, states=(state.RUNNING, state.WAITING)):
                self._enqueue_missing(self._study)  # a process was interrupted and has told the storage

    def _objective(self, measure: Outcome, done: Callable[[Result], None]) -> Callable[[Any], tuple[float, float]]:
        def objective(trial: Any) -> tuple[float, float]:
            trial.set_user_attr(_OWNER, f"{this_machine()} {os.getpid()}")
            queued = trial.user_attrs.get(_KEY)
            # Another process may have taken the last cell of the queue between our look and our turn, or two of them
            # have queued the same cell.
            if self._cells and (queued is None or queued in map(cell_key, (one.cell for one in self.results()))):
                raise self._optuna.TrialPruned
            cell = self._in_order(json.loads(queued)) if queued is not None else self._suggest(trial)
            try:
                result = measure(cell)
            except (Exception, KeyboardInterrupt):
                raise
            except BaseException as reason:  # ComfyUI's cancelling is one; Optuna would leave the cell taken
                raise _Stopped(reason) from reason
            trial.set_user_attr(_PHRASE, data(result.text))
            trial.set_user_attr(_RESULT, asdict(result))
            done(result)
            if result.state not in FINISHED or result.speedup is None or result.difference is None:
                raise self._optuna.TrialPruned
            return result.speedup, result.difference

        return objective

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


def require_same_job(study: str, known: dict[str, str], identity: dict[str, str]) -> None:
    """Check that a study that is ``known`` goes on with the same job; `InvalidSetting` names what is another."""
    if known == identity:
        return
    changed = [name for name in {**known, **identity} if known.get(name) != identity.get(name)]
    parts = (
        phrase("{name} was {before}, is {now}", name=name, before=str(known.get(name)), now=str(identity.get(name)))
        for name in changed
    )
    raise InvalidSetting(
        phrase(
            "The study {study} was begun with other settings: {changes}.",
            study=repr(study),
            changes=joined("; ", parts),
        ),
        translatable("Choose another name, or restore the settings to go on with it."),
    )


def identity_of(space: Space, settings: SweepSettings, job: dict[str, Any]) -> dict[str, str]:
    """Return what must be the same for results to be comparable, by name."""
    identity = {"mode": settings.mode, **{name: str(value) for name, value in job.items()}}
    # A grid may grow: its cells stand for themselves. A search's space may not, as the sampler learns from all of it.
    if settings.mode == "search":
        values = {name: asdict(v) if isinstance(v, Range) else list(v) for name, v in space.values.items()}
        identity["space"] = json.dumps(values, sort_keys=True)
    return identity


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
