"""Where a sweep keeps its results: a database that Optuna manages, opened so that a crash gives cells back."""

from __future__ import annotations

import logging
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailable, PacelineError
from ...core.files import NotWritten

_URLS = "sqlite:///FILE always works; postgresql+psycopg://USER@HOST/NAME needs `pip install psycopg[binary]`."
_MOVE = "Move the file away (in ComfyUI user/__paceline/sweeps/sweeps.db): a new one is made. Saved presets stay."
_KEPT = "Finished cells are kept: run the workflow again when the database is back."


@dataclass(frozen=True)
class Storage:
    """A database for studies, by its title in reports.

    Attributes:
        url: of SQLAlchemy: ``sqlite:///file``, ``postgresql+psycopg://user@host/name``, ... Processes with the same
            database and study share the work. It may hold a password, so it is shown nowhere.
        heartbeat: seconds between two signs of life; after three without one, a cell is given to another process.
    """

    title: str
    url: str = field(repr=False)
    heartbeat: int = 20


def sqlite_storage(title: str, path: Path) -> Storage:
    """Return a database file; its folder is made, `NotWritten` if it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritten(
            f"The folder for the results of sweeps could not be made: {error.strerror or error}.",
            "Free some space, or let this program write to its folder (in ComfyUI user/__paceline).",
        ) from error
    # After a crash the same machine goes on: it knows sooner that a process is gone than over a network.
    return Storage(title, f"sqlite:///{path}", heartbeat=2)


def import_optuna() -> Any:
    """Return the package; `BackendUnavailable` if it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise BackendUnavailable(
            f"Benchmark Sweep needs Optuna, which cannot be imported ({error}).",
            "Run `pip install optuna` with ComfyUI's Python.",
        ) from error
    return optuna


def open_storage(optuna: Any, storage: Storage) -> Any:
    """Return Optuna's storage; `BackendUnavailable` if the database cannot be used."""
    from sqlalchemy.exc import SQLAlchemyError  # comes with Optuna

    with using(optuna, ImportError, ValueError):
        for attempt in range(5):
            try:
                return optuna.storages.RDBStorage(
                    storage.url.replace("{", "{{").replace("}", "}}"),  # Optuna formats it: braces would be replaced
                    heartbeat_interval=storage.heartbeat,
                    grace_period=3 * storage.heartbeat,
                )
            except SQLAlchemyError as error:
                # Two processes that meet an empty database both make its tables; the second one fails, once.
                if "already exists" not in str(error) or attempt == 4:
                    raise
                time.sleep(0.3)
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def using(optuna: Any, *further: type[Exception]) -> Iterator[None]:
    """Keep Optuna from logging each cell, and the address, users, statements and passwords of its database secret.

    Errors of the database, and ``further`` kinds from it, whose texts hold all that, become `BackendUnavailable`.
    """
    from sqlalchemy.exc import SQLAlchemyError

    kinds = (SQLAlchemyError, optuna.exceptions.StorageInternalError, *further)
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of heartbeats
            yield
    except PacelineError:
        raise
    except Exception as error:
        # Optuna's own handling of an error asks the database again, and may end in an error of another kind.
        chain: list[BaseException] = [error]
        while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
            chain.append(cause)
        if not any(isinstance(one, kinds) for one in chain):
            raise
        reason, remedy = _explain(chain)
        raise BackendUnavailable(f"The storage of the study cannot be used: {reason}.", remedy) from None
    finally:
        optuna.logging.set_verbosity(before)


def _explain(chain: list[BaseException]) -> tuple[str, str]:
    """Return what kind of error a database has raised, in none of its words, and what to do."""
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

    def first(*kinds: type[BaseException]) -> Any:
        return next((one for one in chain if isinstance(one, kinds)), None)

    if (failed := first(sqlite3.Error)) is not None:
        if any(words in str(failed) for words in ("no such", "no column")):
            return "its file holds other tables than Optuna's, as grids.db of early versions of this pack did", _MOVE
        if isinstance(failed, sqlite3.OperationalError):
            return "its file cannot be read or written", "Let this program write there, and free some space."
        return "its file is damaged", _MOVE
    if first(NoSuchModuleError):
        return "SQLAlchemy knows no such kind of database", _URLS
    if first(OperationalError):
        return "the database does not answer, or does not let this user in", _KEPT
    if first(ImportError):
        names = [one.name for one in chain if isinstance(one, ImportError) and one.name]
        return f"the package {names[0] if names else 'of its driver'} is not installed", _URLS
    if first(ArgumentError, ValueError):
        return "its address is no URL that SQLAlchemy can read", _URLS
    return "the database answers in a way that was not expected", _KEPT
