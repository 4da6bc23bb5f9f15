"""A grid without Optuna: its results in a small SQLite file of its own, so that it goes on where it stopped.

One process at a time: sharing the cells of a study among processes is what Optuna is for.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...core.phrases import data, restored
from .results import Result
from .space import Space, cell_key
from .study import Outcome, Sweep, SweepSettings, identity_of, require_same_job

_FILE_URL = "sqlite:///"
_TABLES = """
CREATE TABLE IF NOT EXISTS studies (name TEXT PRIMARY KEY, identity TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS cells (study TEXT, key TEXT, result TEXT NOT NULL, PRIMARY KEY (study, key));
CREATE TABLE IF NOT EXISTS phrases (study TEXT, key TEXT, phrase TEXT NOT NULL, PRIMARY KEY (study, key));
"""


def open_sweep(space: Space, settings: SweepSettings, job: dict[str, Any]) -> Sweep | PlainGrid:
    """Return a study that is open: Optuna's, or a plain grid where Optuna is not installed.

    A grid that was begun without Optuna goes on without it. Arguments and errors are those of :class:`Sweep`.
    """
    path = plain_file(settings)
    if path is not None and (find_spec("optuna") is None or _has_study(path, settings.name)):
        return PlainGrid(space, settings, job, path)
    return Sweep(space, settings, job)


def plain_file(settings: SweepSettings) -> Path | None:
    """Return the file of plain grids; None for what only Optuna can do: a search, another kind of database."""
    if settings.mode != "grid" or not settings.storage.startswith(_FILE_URL):
        return None
    return Path(settings.storage.removeprefix(_FILE_URL)).with_name("grids.db")


class PlainGrid:
    """A grid that is open, with the methods of :class:`Sweep`.

    Raises:
        InvalidSetting: if the study exists and holds results of another job.
    """

    def __init__(self, space: Space, settings: SweepSettings, job: dict[str, Any], path: Path) -> None:
        self._cells, self._name, self._path = space.cells(), settings.name, path
        identity = identity_of(space, settings, job)
        with closing(self._connect()) as database, database:
            database.execute("INSERT OR IGNORE INTO studies VALUES (?, ?)", (self._name, json.dumps(identity)))
            (known,) = database.execute("SELECT identity FROM studies WHERE name = ?", (self._name,)).fetchone()
        require_same_job(self._name, json.loads(known), identity)

    @property
    def total(self) -> int:
        """How many cells the grid has."""
        return len(self._cells)

    def results(self) -> list[Result]:
        """Return what has been measured so far, in the order of the grid."""
        with closing(self._connect()) as database:
            rows = dict(database.execute("SELECT key, result FROM cells WHERE study = ?", (self._name,)))
            phrases = dict(database.execute("SELECT key, phrase FROM phrases WHERE study = ?", (self._name,)))
        found = []
        for cell in self._cells:
            if cell_key(cell) in rows:
                one = Result(**json.loads(rows[cell_key(cell)]) | {"cell": cell})
                text = restored(one.text, json.loads(phrases.get(cell_key(cell), "null")))
                found.append(replace(one, text=text))
        return found

    def run(
        self,
        measure: Outcome,
        done: Callable[[Result], None] = lambda result: None,
        idle: Callable[[], None] = lambda: None,
    ) -> list[Result]:
        """Measure what is left and return all results; arguments as of :meth:`Sweep.run`."""
        measured = {cell_key(result.cell) for result in self.results()}
        for cell in self._cells:
            if cell_key(cell) in measured:
                continue
            result = measure(cell)
            with closing(self._connect()) as database, database:
                row = (self._name, cell_key(cell), json.dumps(asdict(result)))
                database.execute("INSERT OR REPLACE INTO cells VALUES (?, ?, ?)", row)
                phrase = (*row[:2], json.dumps(data(result.text)))
                database.execute("INSERT OR REPLACE INTO phrases VALUES (?, ?, ?)", phrase)
            done(result)
        return self.results()

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=30)
        database.executescript(_TABLES)
        return database


def _has_study(path: Path, name: str) -> bool:
    if not path.is_file():
        return False
    with closing(sqlite3.connect(path)) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        return "studies" in tables and bool(
            database.execute("SELECT 1 FROM studies WHERE name = ?", (name,)).fetchall()
        )
