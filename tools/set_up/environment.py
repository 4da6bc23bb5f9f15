"""The virtual environment that the set-up fills: pip, stamps, and repair after an interruption."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .failures import SetupFailed, explain

# Runs in the environment. Prints what is installed only in part: a package that pip was interrupted in looks
# installed to pip as soon as its metadata is there.
FIND_DAMAGED = """
import importlib.metadata, os, sys
for entry in os.listdir(sys.argv[1]):
    if not entry.endswith(".dist-info"):
        continue
    path = os.path.join(sys.argv[1], entry)
    dist = importlib.metadata.PathDistribution(__import__("pathlib").Path(path))
    try:
        files = dist.files
        whole = bool(dist.metadata["Name"]) and bool(files) and all(
            f.locate().exists() and (f.size is None or f.locate().stat().st_size == f.size)
            for f in files if not str(f).endswith(".pyc"))
    except Exception:
        whole = False
    if not whole:
        print(entry)
"""


class Environment:
    """The virtual environment, its pip, and the stamps of what is in it."""

    def __init__(self, folder: Path, cache: Path, lock: int | None) -> None:
        self.folder = folder
        self.cache = cache
        self.stamps = folder / ".paceline"
        self.log = cache / "setup.log"
        self._lock = lock
        windows = os.name == "nt"
        self.python = folder / ("Scripts/python.exe" if windows else "bin/python")

    def run(self, command: Sequence[str | Path], what: str) -> None:
        """Run a command, its output to the log; on failure show the end of it and what to do."""
        # The lock is handed down: if we are killed, the next call waits for an orphaned pip.
        keep = [] if self._lock is None else [self._lock]
        with self.log.open("w", encoding="utf-8") as log:
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment(), pass_fds=keep
                )
            except FileNotFoundError:
                raise SetupFailed(f"{what}: {command[0]} is missing.") from None
        if done.returncode != 0:
            raise SetupFailed(f"{what} failed.", explain(self.log.read_text(errors="replace")))

    def works(self, *arguments: str) -> bool:
        """Say whether the environment's Python runs with these arguments."""
        try:
            done = subprocess.run(
                [self.python, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=clean_environment(),
            )
        except OSError:
            return False
        return done.returncode == 0

    def output(self, *arguments: str) -> str:
        """Return what the environment's Python prints."""
        done = subprocess.run(
            [self.python, *arguments], capture_output=True, text=True, env=clean_environment(), check=True
        )
        return done.stdout.strip()

    def pip(self, what: str, *arguments: str | Path) -> None:
        """Run pip; ``what`` starts the message if it fails."""
        self.run([self.python, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments], what)

    @property
    def packages(self) -> Path:
        """The environment's site-packages."""
        found = sorted(self.folder.glob("lib/python3*/site-packages")) or [self.folder / "Lib/site-packages"]
        return found[0]

    def installed(self) -> list[str]:
        """Return the names of the metadata folders of what is installed."""
        try:
            return sorted(name for name in os.listdir(self.packages) if name.endswith(".dist-info"))
        except OSError:
            return []

    def is_done(self, stage: str, fingerprint: str) -> bool:
        """Say whether ``stage`` succeeded with these inputs and what it installed is still there."""
        try:
            stamp = json.loads((self.stamps / f"{stage}.json").read_text())
            return stamp["fingerprint"] == fingerprint and set(stamp["installed"]) <= set(self.installed())
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def begin(self, stage: str) -> None:
        """Note that ``stage`` starts. If a stage was interrupted before, remove what is damaged."""
        running = self.stamps / "running"
        if running.exists():
            self.remove_damaged()
        self.stamps.mkdir(exist_ok=True)
        (self.stamps / f"{stage}.json").unlink(missing_ok=True)
        running.write_text(stage)

    def finish(self, stage: str, fingerprint: str) -> None:
        """Write the stamp of ``stage``."""
        write_atomically(
            self.stamps / f"{stage}.json",
            json.dumps({"fingerprint": fingerprint, "installed": self.installed()}),
        )
        (self.stamps / "running").unlink(missing_ok=True)

    def remove_damaged(self) -> None:
        """Make pip install again what is only half there, by removing its metadata."""
        for name in self.output("-c", FIND_DAMAGED, str(self.packages)).splitlines():
            shutil.rmtree(self.packages / name, ignore_errors=True)
        for leftover in self.packages.glob("~*"):  # pip's name for what it was replacing
            shutil.rmtree(leftover, ignore_errors=True)


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would lead Python or pip elsewhere."""
    drop = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_CONSTRAINT", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    return kept | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}


def write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    os.replace(temporary, path)


def fingerprint_of(*parts: object) -> str:
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()
