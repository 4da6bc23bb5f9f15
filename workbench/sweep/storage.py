"""Where a sweep keeps its results: a database of Optuna, whose errors are told without its address.

A workflow can come from a stranger. So it names a storage that the owner of the server has written down, and cannot say
where one is: that would let it connect the server to any machine, or write files anywhere.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailable, InvalidSetting, PacelineError
from ...core.files import NotWritten

_NAME = re.compile(r"\w[\w -]{0,79}")
_HOW = (
    "Leave it empty for a file on this server, or let the server's owner write name and URL of the database into "
    "user/__paceline/storages.json, and give the name."
)
_URLS = "sqlite:///FILE always works; postgresql+psycopg://USER@HOST/NAME needs `pip install psycopg[binary]`."
_MOVE = "Move the file away (in ComfyUI user/__paceline/sweeps/sweeps.db): a new one is made. Saved presets stay."
_KEPT = "Finished cells are kept: run the workflow again when the database is back."


@dataclass(frozen=True)
class Storage:
    """A database for studies, by its title in reports.

    ``url`` is one of SQLAlchemy: ``sqlite:///file``, ``postgresql+psycopg://user@host/name``, ... Processes with the
    same database and study share the work. It may hold a password, so it is shown nowhere.
    """

    title: str
    url: str = field(repr=False)


def sqlite_storage(title: str, path: Path) -> Storage:
    """Return a database file; its folder is made, `NotWritten` if it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritten(
            f"The folder for the results of sweeps could not be made: {error.strerror or error}.",
            "Free some space, or let this program write to its folder (in ComfyUI user/__paceline).",
        ) from error
    return Storage(title, f"sqlite:///{path}")


def storage_named(name: str, folder: Path) -> Storage:
    """Return a storage by the name that a workflow gives it; an empty one is a file in ``folder``, as the names are.

    `InvalidSetting` if there is none. It does not repeat what was given, which may hold a password.
    """
    if isinstance(name, str) and not name.strip():
        return sqlite_storage("SQLite in the user's folder", folder / "sweeps" / "sweeps.db")
    if not isinstance(name, str) or not _NAME.fullmatch(name.strip()):
        raise InvalidSetting("storage is not the name of a storage: a workflow cannot give an address.", _HOW)
    found = _named_in(folder / "storages.json")
    if name.strip() not in found:
        there = f"There are: {', '.join(found)}." if found else "There are none."
        raise InvalidSetting(f"storage names no storage of this server. {there}", _HOW)
    return Storage(name.strip(), found[name.strip()])


def _named_in(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not all(
        _NAME.fullmatch(name) and isinstance(url, str) for name, url in content.items()
    ):
        raise InvalidSetting(
            "The server's file storages.json cannot be read.",
            'It must be JSON that maps names (letters, digits, spaces, _ and -) to URLs: {"lab": "postgresql..."}.',
        )
    return content


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


def open_study(optuna: Any, name: str, storage: Storage) -> Any:
    """Return Optuna's study of that name, which is made if there is none; `BackendUnavailable` without its database."""
    with using(optuna, ImportError, ValueError):
        return optuna.create_study(
            study_name=name,
            storage=storage.url.replace("{", "{{").replace("}", "}}"),  # Optuna formats it: braces would be replaced
            directions=["maximize", "minimize"],
            sampler=optuna.samplers.TPESampler(seed=0, multivariate=True, group=True),
            load_if_exists=True,
        )


@contextmanager
def using(optuna: Any, *further: type[Exception]) -> Iterator[None]:
    """Keep Optuna from logging each cell, and the address, users, statements and passwords of its database secret.

    Errors of the database, and ``further`` kinds from it, whose texts hold all that, become `BackendUnavailable`.
    """
    from sqlalchemy.exc import SQLAlchemyError  # comes with Optuna

    kinds = (SQLAlchemyError, optuna.exceptions.StorageInternalError, *further)
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of the sampler
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
        other_tables = any(words in str(failed) for words in ("no such", "no column"))
        if isinstance(failed, sqlite3.OperationalError) and not other_tables:
            return "its file cannot be read or written", "Let this program write there, and free some space."
        return "its file is damaged, or holds other tables than Optuna's", _MOVE
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
