"""Where a sweep keeps its results: a database that Optuna manages, opened so that a crash gives cells back."""

from __future__ import annotations

import logging
import os
import platform
import sqlite3
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailable, PacelineError
from ...core.files import NotWritten
from ...core.phrases import phrase, translatable


@dataclass(frozen=True)
class Storage:
    """A database for studies.

    Attributes:
        title: how it is called in reports and errors.
        url: of SQLAlchemy. It may hold a password, so it is shown nowhere.
    """

    title: str
    url: str = field(repr=False)


def sqlite_storage(path: Path) -> str:
    """Return the URL of a database file; its folder is made, `NotWritten` if it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritten(
            phrase("The folder for the results of sweeps could not be made: {why}.", why=str(error.strerror or error)),
            translatable("Free some space, or let this program write to its folder (in ComfyUI user/__paceline)."),
        ) from error
    return f"sqlite:///{path}"


def open_storage(optuna: Any, url: str, heartbeat: int) -> Any:
    """Return Optuna's storage.

    Args:
        optuna: the package.
        url: database URL.
        heartbeat: seconds between two signs of life; after three without one, a cell is given to another process.

    Raises:
        BackendUnavailable: if the database cannot be used.
    """
    from sqlalchemy.exc import SQLAlchemyError  # comes with Optuna

    for attempt in range(5):
        try:
            return optuna.storages.RDBStorage(
                url.replace("{", "{{").replace("}", "}}"),  # Optuna formats it: braces would be replaced
                heartbeat_interval=heartbeat,
                grace_period=3 * heartbeat,
                heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
            )
        except (ImportError, ValueError, SQLAlchemyError) as error:
            # Two processes that meet an empty database both make its tables; the second one fails, once.
            if "already exists" not in str(error) or attempt == 4:
                raise BackendUnavailable(
                    phrase("The storage cannot be used: {why}.", why=_reason(error)),
                    _about_file(error)
                    or translatable(
                        "sqlite:///FILE always works; postgresql+psycopg://USER@HOST/NAME needs "
                        "`pip install psycopg[binary]`."
                    ),
                ) from None
            time.sleep(0.3)
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def without_credentials(optuna: Any) -> Iterator[None]:
    """Replace errors of the database: their texts can hold its address, users, statements and passwords.

    Raises:
        BackendUnavailable: for them.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except PacelineError:
        raise
    except Exception as error:
        # Optuna's own handling of an error asks the database again, and may end in an error of another kind.
        origin: BaseException | None = error
        while not (origin is None or isinstance(origin, (SQLAlchemyError, optuna.exceptions.StorageInternalError))):
            origin = origin.__cause__ or origin.__context__
        if origin is None:
            raise
        raise BackendUnavailable(
            phrase("The storage of the study has failed: {why}.", why=_reason(origin)),
            _about_file(origin)
            or translatable("Finished cells are kept: run the workflow again when the database is back."),
        ) from None


def _reason(error: BaseException) -> str:
    """Return what kind of error a database has raised, and none of its words."""
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

    while error.__cause__ is not None and not isinstance(error, (ImportError, OperationalError)):
        error = error.__cause__
    if isinstance(error, ImportError):
        missing = error if error.name else error.__cause__
        name = getattr(missing, "name", None) or translatable("of its driver")
        return phrase("the package {name} is not installed", name=name)
    if isinstance(error, NoSuchModuleError):
        return translatable("SQLAlchemy knows no such kind of database")
    if isinstance(error, (ArgumentError, ValueError)):
        return translatable("its address is no URL that SQLAlchemy can read")
    if (origin := _file_error(error)) is not None:
        wanted = isinstance(origin, sqlite3.OperationalError)
        unread, damaged = translatable("its file cannot be read or written"), translatable("its file is damaged")
        return unread if wanted else damaged
    if isinstance(error, OperationalError):
        return translatable("the database does not answer, or does not let this user in")
    return translatable("the database answers in a way that was not expected")


def _file_error(error: BaseException | None) -> sqlite3.Error | None:
    """Return what SQLite says, if that is what failed."""
    while error is not None:
        origin = getattr(error, "orig", error)
        if isinstance(origin, sqlite3.Error):
            return origin
        error = error.__cause__
    return None


def _about_file(error: BaseException) -> str:
    """Return what to do about a database that is a file; nothing for others."""
    origin = _file_error(error)
    if origin is None:
        return ""
    if isinstance(origin, sqlite3.OperationalError):
        return translatable("Free some space on its disk, and let this program write there. Finished cells are kept.")
    return translatable(
        "Move the file away (in ComfyUI user/__paceline/sweeps/sweeps.db): a new one is made. Presets that were saved "
        "stay."
    )


def import_optuna() -> Any:
    """Return the package, which is optional.

    Raises:
        BackendUnavailable: if it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise BackendUnavailable(
            phrase(
                "A search, and a sweep that machines share, need Optuna, which is not installed ({error}).",
                error=str(error),
            ),
            translatable("Run `pip install optuna` with ComfyUI's Python, or choose search grid without a storage."),
        ) from error
    return optuna


@contextmanager
def quiet(optuna: Any) -> Iterator[None]:
    """Keep Optuna from writing a line for each cell and a traceback for each stop, and that heartbeats are young."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def this_machine() -> str:
    """Return a name that two processes share exactly if they see each other's process numbers."""
    try:
        space = os.readlink("/proc/self/ns/pid")  # containers can have one host name and numbers of their own
    except OSError:
        space = ""
    return f"{platform.node()} {space}"


def is_alive(process: int) -> bool:
    """Say whether a process of this machine runs; True where that cannot be told."""
    if sys.platform == "win32":  # where this would end the process instead of asking for it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there, and belongs to another user
        return True
    return True
