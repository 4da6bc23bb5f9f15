"""The sweep itself: an Optuna study, so that it survives a crash and can be shared by many machines.

The cells of a grid are trials in the queue of Optuna (https://optuna.org, Akiba et al. 2019), which hands each to one
process; its GridSampler draws them at random, counts interrupted ones as done, and begins anew when the grid grows. A
cell without a result goes to the end of the queue again: its process may have died. So nobody waits for another, and
processes that share a study may measure its last cells twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...core.errors import InvalidSetting, require_choice, require_integer, require_number
from .axes import Axes, Cell, Range, cell_key, without_absent
from .results import Result
from .storage import Storage, import_optuna, open_study, using

_RESULT, _JOB, _KEY = "paceline_result", "paceline_job", "paceline_cell"
MODES = ("grid", "search")


@dataclass(frozen=True)
class SweepPlan:
    """How to go through all cells, and what is wanted of them.

    A ``study`` of the same name continues where it stopped; the preset that is saved has its name too. ``mode`` is
    ``grid``, every cell once, or ``search``, where Optuna's sampler chooses ``trials`` cells in all, over all
    processes. ``largest_difference`` is that of the preset, as a share of a seed change.
    """

    study: str
    storage: Storage
    mode: str = "grid"
    trials: int = 20
    largest_difference: float = 0.25

    def __post_init__(self) -> None:
        require_choice("mode", self.mode, MODES)
        require_integer("trials", self.trials, 1, 100_000)
        require_number("largest_difference", self.largest_difference, 0.0, 10.0)


class Sweep:
    """A study that is open.

    ``job`` is what all cells have in common (model, prompt, sampler, rounds, ...). A study never mixes two jobs.

    Raises:
        BackendUnavailable: if Optuna is not installed, or the database cannot be used.
        InvalidSetting: if the study exists and holds results of another job or other axes.
    """

    def __init__(self, axes: Axes, plan: SweepPlan, job: dict[str, Any]) -> None:
        self._optuna = import_optuna()
        self._states = self._optuna.trial.TrialState
        self._axes, self._plan = axes, plan
        self._cells = {cell_key(cell): cell for cell in axes.cells()} if plan.mode == "grid" else {}
        self._study = open_study(self._optuna, plan.study, plan.storage)
        identity = _identity(axes, plan, job)
        with using(self._optuna):
            _require_same_job(plan.study, self._study.user_attrs.get(_JOB, identity), identity)
            self._study.set_user_attr(_JOB, identity)

    @property
    def total(self) -> int:
        return len(self._cells) or self._plan.trials

    def results(self) -> list[Result]:
        """Return what has been measured so far, by all processes: in the order of the grid, or oldest first."""
        found = self._found()
        if not self._cells:
            return list(found.values())
        # The same name may have served for a larger grid before.
        return [found[key] for key in self._cells if key in found]

    def run(
        self, measure: Callable[[Cell], Result], done: Callable[[Result], None] = lambda result: None
    ) -> list[Result]:
        """Measure what is left and return all results; ``done`` is called after each cell of this process.

        What ``measure`` raises stops the sweep; the cell is measured again the next time.
        """
        with using(self._optuna):
            while not self._is_done():
                if self._cells and not self._trials(self._states.WAITING):
                    self._enqueue_missing()
                trial = self._study.ask()
                cell = self._cell_of(trial)
                if cell is None:
                    self._study.tell(trial, state=self._states.PRUNED, skip_if_finished=True)
                    continue
                result = self._found().get(cell_key(cell)) or measure(cell)  # a search may ask again
                # SQLite may hand one trial to two processes: Optuna takes the result of the first.
                with suppress(self._optuna.exceptions.UpdateFinishedTrialError):
                    trial.set_user_attr(_RESULT, asdict(result))
                values = result.speedup, result.difference
                told = {"state": self._states.PRUNED} if None in values else {"values": values}
                self._study.tell(trial, **told, skip_if_finished=True)
                done(result)
        return self.results()

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

    def _enqueue_missing(self) -> None:
        found = self._found()
        for key, cell in self._cells.items():
            if key not in found:
                self._study.enqueue_trial(cell, user_attrs={_KEY: key})

    def _cell_of(self, trial: Any) -> Cell | None:
        """Return the cell that a trial is to measure; None if it is not to be measured now.

        It may have been queued for another grid of the same name, or measured by another process meanwhile. If another
        process is at it, it is left for the end.
        """
        if not self._cells:
            return self._suggest(trial)
        key, trials = trial.user_attrs.get(_KEY), self._trials()
        running = {one.user_attrs.get(_KEY) for one in trials[: trial.number] if one.state == self._states.RUNNING}
        at_the_end = not any(one.state == self._states.WAITING for one in trials)
        left_to_another = key in self._found() or (key in running and not at_the_end)
        return None if left_to_another else self._cells.get(key)

    def _in_order(self, cell: Cell) -> Cell:
        """Return ``cell`` with its names in the order of the axes, which a storage does not keep."""
        return {name: cell[name] for name in self._axes.values if name in cell}

    def _suggest(self, trial: Any) -> Cell:
        cell: Cell = {}
        # Switches first: settings of a node that is off are not asked for, so that the sampler does not learn noise.
        for name in sorted(self._axes.values, key=lambda name: "." in name):
            values = self._axes.values[name]
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


def _identity(axes: Axes, plan: SweepPlan, job: dict[str, Any]) -> dict[str, str]:
    identity = {"mode": plan.mode, **{name: str(value) for name, value in job.items()}}
    # A grid may grow: its cells stand for themselves. A search's axes may not, as the sampler learns from all of them.
    if plan.mode == "search":
        values = {name: asdict(v) if isinstance(v, Range) else list(v) for name, v in axes.values.items()}
        identity["axes"] = json.dumps(values, sort_keys=True)
    return identity
