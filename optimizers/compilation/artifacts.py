"""Keep compiled code on disk from one start of the program to the next.

torch's inductor keeps what it compiled in a folder that it reads and writes through ``TORCHINDUCTOR_CACHE_DIR``, by
default in the system's temporary files. A store gives each compiled model a folder of its own in a place that stays.

    <root>/<machine>/<entry>/entry.json    what it is, and when it was last used
                             inductor/     torch's own files

``<machine>`` names everything compiled code depends on beside the model: torch, Python, the GPU or CPU. torch checks
the rest itself, graph by graph, by a hash over the traced operations, their sizes and every option.

These files are programs. They are only ever read from the store, which must belong to the user alone.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ...core.devices import fingerprint, machine_description
from .artifact_files import (
    belongs_to_user_alone,
    folder_size,
    is_too_deep,
    libraries_are_whole,
    read_about,
    read_seconds,
    write_about,
)

ENVIRONMENT_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
TRITON_VARIABLE = "TRITON_CACHE_DIR"
DEFAULT_LIMIT_BYTES = 4 * 1024**3

_environment = threading.RLock()
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """One compiled model in a store.

    Attributes:
        path: its folder.
        about: what is in it, as it was described when it was made.
        last_used: seconds since the epoch.
        size: of all its files, in bytes.
    """

    path: Path
    about: dict[str, object]
    last_used: float
    size: int


class ArtifactStore:
    """A folder of compiled code, bounded in size.

    Args:
        root: made when something is kept for the first time.
        limit_bytes: the entries that were not used for the longest time are removed when all exceed this.
    """

    def __init__(self, root: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.root = Path(root)
        self.limit_bytes = limit_bytes

    def folder(self, about: Mapping[str, object], device: str = "cpu") -> ArtifactFolder:
        """Return the folder for a model.

        Args:
            about: the model's structure and the settings of its compilation; values that JSON can hold.
            device: the torch device that it runs on.
        """
        machine = machine_description(device)
        return ArtifactFolder(self, self.root / fingerprint(machine) / fingerprint(about), {**about, **machine})

    def entries(self) -> list[Entry]:
        """Return what is kept, most recently used first. What cannot be read is left out."""
        found = []
        for file in self.root.glob("*/*/entry.json"):
            about = read_about(file)
            if about is not None:
                found.append(Entry(file.parent, about, file.stat().st_mtime, folder_size(file.parent)))
        return sorted(found, key=lambda entry: -entry.last_used)

    def size(self) -> int:
        """Return the bytes that everything in the store takes."""
        return folder_size(self.root)

    def trim(self, keep: Path | None = None) -> list[Entry]:
        """Remove the entries that were not used for the longest time until the rest is within the limit.

        Args:
            keep: an entry's folder that must stay: the one in use.
        """
        removed = []
        entries = self.entries()
        total = self.size()
        if total > self.limit_bytes:  # first, what nobody can read
            for folder in {*self.root.glob("*/*")} - {entry.path for entry in entries} - {keep}:
                total -= folder_size(folder)
                shutil.rmtree(folder, ignore_errors=True)
        for entry in reversed(entries):
            if total <= self.limit_bytes:
                break
            if entry.path != keep:
                shutil.rmtree(entry.path, ignore_errors=True)
                total -= entry.size
                removed.append(entry)
        return removed


class ArtifactFolder:
    """The place of one compiled model in a store.

    Attributes:
        path: the folder; it may not exist yet.
        was_used: whether it held something when this program first used it.
    """

    def __init__(self, store: ArtifactStore, path: Path, about: Mapping[str, object]) -> None:
        self.store = store
        self.path = path
        self.about = dict(about)
        self.was_used = False
        self._opened = False
        self._refused = False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let inductor read and write here while the block runs.

        Where the user has chosen a folder for inductor, that one is left in charge.
        """
        # The variable is torch's only switch for this. It belongs to the process, so no two threads at once.
        with _environment:
            previous = os.environ.get(ENVIRONMENT_VARIABLE)
            if self._refused or _chosen_by_user(previous) or not self._open():
                yield
                return
            # torch derives Triton's folder from inductor's, but only once in a process: then the output of all that
            # is compiled later, by anybody, would lie in this entry. And its worker processes keep the last folder that
            # they were told, so they are told each time.
            found = os.environ.get(TRITON_VARIABLE)
            ours = found if found and _chosen_by_user(found) else str(self.path / "inductor" / "triton")
            try:
                with _environ(ENVIRONMENT_VARIABLE, str(self.path / "inductor")), _environ(TRITON_VARIABLE, ours):
                    yield
            finally:
                _set(ENVIRONMENT_VARIABLE, previous)  # looking for the folder has set it too
                if not found and os.path.isdir(ours):  # as torch itself leaves it, for the workers' next task
                    _set(TRITON_VARIABLE, os.path.join(_default_folder(), "triton", "0"))
                self._keep()

    def size(self) -> int:
        """Return the bytes it takes."""
        return folder_size(self.path)

    def expected_seconds(self, function: str) -> float | None:
        """Return how long a function took to compile when this folder was last used; None if that is not known."""
        return read_seconds(self.path).get(function)

    def remember_seconds(self, function: str, seconds: float) -> None:
        """Write down how long a function took to compile; only where something is kept."""
        if self._opened and self.path.exists():
            self._keep({function: seconds})

    def discard(self, reason: str) -> None:
        """Remove it, because what it holds cannot be used."""
        _log.warning("Paceline: compiled code in %s was removed: %s", self.path, reason)
        shutil.rmtree(self.path, ignore_errors=True)
        self.was_used = self._opened = False

    def _keep(self, seconds: Mapping[str, float] = MappingProxyType({})) -> None:
        """Say what was made and how long that took, and keep the store within its limit."""
        try:
            # Gone if somebody has cleared the store in the meantime.
            (self.path / "inductor").mkdir(parents=True, exist_ok=True)
            write_about(self.path, self.about, {**read_seconds(self.path), **seconds})
            self.store.trim(keep=self.path)
        except OSError as error:
            _log.warning("Paceline: compiled code could not be kept in %s: %s", self.path, error)

    def _open(self) -> bool:
        """Make the folder, or check the one that is there; return whether it can be used."""
        if self._opened and self.path.exists():
            return True
        try:
            refusal = self._prepare()
        except OSError as error:
            refusal = f"{type(error).__name__}: {error}"
        if refusal is not None:
            self._refused = True
            _log.warning("Paceline: compiled code is not kept in %s: %s", self.path, refusal)
            return False
        self._opened = True
        return True

    def _prepare(self) -> str | None:
        if is_too_deep(self.path):
            return "its path is too long for Windows; switch long paths on in Windows, or move ComfyUI up"
        _compile_probes()
        self.store.root.mkdir(0o700, parents=True, exist_ok=True)
        if not belongs_to_user_alone(self.store.root):
            return f"others may write to {self.store.root}, and what is kept there is run as a program"
        if self.path.exists():
            about = read_about(self.path / "entry.json")
            if about != json.loads(json.dumps(self.about, default=str)) or not libraries_are_whole(self.path):
                self.discard("it is damaged, or was made for something else")
            else:
                self.was_used = True
        self._keep()
        return None


@contextmanager
def _environ(name: str, value: str | None) -> Iterator[None]:
    """Set a variable of the environment while the block runs (None: take it out), and put back what was there."""
    previous = os.environ.get(name)
    _set(name, value)
    try:
        yield
    finally:
        _set(name, previous)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _chosen_by_user(value: str | None) -> bool:
    """Return whether the environment variable holds something else than what torch itself puts there."""
    if not value:
        return False
    return not Path(os.path.abspath(value)).is_relative_to(os.path.abspath(_default_folder()))


def _default_folder() -> str:
    """Return where torch keeps compiled code if nobody says anything."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    return default_cache_dir()


def _compile_probes() -> None:
    """Let inductor try out the CPU's instructions in its own folder: a test program each, once per process."""
    from torch._inductor import cpu_vec_isa

    cpu_vec_isa.pick_vec_isa()
