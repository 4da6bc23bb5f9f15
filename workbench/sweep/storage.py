"""Where a sweep keeps its study: any storage of Optuna's, whose errors are told without its password.

A workflow can come from a stranger, so it cannot say where a storage is: that would let it connect the server to any
machine, or write files anywhere. Only who starts the server can, with an environment variable.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ...core.errors import BackendUnavailable, error_line

VARIABLE = "PACELINE_SWEEP_STORAGE"
"""Holds the storage's name, as Optuna takes it: ``postgresql+psycopg://user:password@host/name``."""


@dataclass(frozen=True)
class Storage:
    """A storage of Optuna's by ``name``, which may hold a password and is shown nowhere.

    ``dashboard`` is the command that shows its studies.
    """

    name: str = field(repr=False)
    dashboard: str


def chosen_storage(file: Path) -> Storage:
    """Return the storage that the server was started with, else SQLite in ``file``."""
    if named := os.environ.get(VARIABLE):
        return Storage(named, f'optuna-dashboard "${VARIABLE}"')
    with suppress(OSError):  # Optuna says that it cannot open the file
        file.parent.mkdir(parents=True, exist_ok=True)
    # Optuna takes a name for a format string.
    name = f"sqlite:///{file}".replace("{", "{{").replace("}", "}}")
    return Storage(name, f'optuna-dashboard "{name}"')


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


@contextmanager
def using(optuna: Any, storage: Storage) -> Iterator[None]:
    """Turn what Optuna raises into `BackendUnavailable` with its own words, and let it log errors only."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    except Exception as error:
        told = _without_password(error_line(error.__cause__ or error, named=True), storage.name)
        raise BackendUnavailable(
            f"Optuna cannot use the storage of the study: {told.rstrip('.')}.",
            "Finished cells are kept: run the workflow again when it works. A damaged file can be moved away.",
        ) from None
    finally:
        optuna.logging.set_verbosity(before)


def _without_password(text: str, name: str) -> str:
    """Return ``text``, or only its first word where it holds a part of the password in a storage's ``name``."""
    address, _, query = name.partition("?")
    given = re.findall(r"pass[^=&]*=([^&]*)", query)
    secrets = "&".join([address.partition("://")[2].rpartition("@")[0].partition(":")[2], *given])
    # A password with signs that belong into a URL otherwise is read as the name of a host, a port, ...
    parts = {part for secret in (secrets, unquote(secrets)) for part in re.split(r"[\s@:/?#&=]", secret) if part}
    return f"{text.split(':')[0]} (its text is left out)" if any(part in text for part in parts) else text
