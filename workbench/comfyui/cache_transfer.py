"""Carry compiled code to an identical machine of the same owner, in a zip file.

Compiled code is a program that runs with your rights. So an import needs the fingerprint that the export has returned,
carried over in another way than the file.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path, PurePosixPath

import torch

from ...core.devices import machine_description
from ...optimizers.compilation.artifacts import ArtifactStore, Entry

CONTENTS = "contents.json"
"""Name of the file inside that lists all others with their hashes."""


_LARGEST_LIST = 64 * 2**20
"""Bytes; a list that unpacks to more was not made here."""

_DAMAGED = (KeyError, ValueError, TypeError, AttributeError, RecursionError)


class Refused(Exception):
    """The file cannot be imported; the text says why."""


def export_entries(store: ArtifactStore, file: Path) -> str:
    """Write everything in ``store`` into a zip file and return its fingerprint."""
    hashes: dict[str, str] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in store.entries():
            for path in sorted(entry.path.rglob("*")):
                if path.is_file() and not path.is_symlink():
                    name = path.relative_to(store.root).as_posix()
                    hashes[name] = hashlib.sha256(path.read_bytes()).hexdigest()
                    archive.write(path, name)
        archive.writestr(CONTENTS, json.dumps(hashes, indent=1, sort_keys=True))
    return _fingerprint(hashes)


def import_entries(store: ArtifactStore, file: Path, fingerprint: str) -> list[Entry]:
    """Read a zip file of :func:`export_entries` into ``store`` and return the new entries.

    Raises:
        Refused: if the fingerprint, a file's hash, or the machine is another one; nothing is written then.
    """
    try:
        contents = _read(store.root, file, fingerprint)
        _require_this_machine(contents)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, *_DAMAGED) as error:
        raise Refused(f"{file} cannot be read, or was not made by this command ({type(error).__name__}).") from error
    before = {entry.path for entry in store.entries()}
    try:
        for path, data in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    except OSError as error:  # no space, or names that this disk cannot have
        raise Refused(f"{file} cannot be written to the store: {error.strerror}.") from error
    return [entry for entry in store.entries() if entry.path not in before]


def _read(root: Path, file: Path, fingerprint: str) -> dict[Path, bytes]:
    """Return what a zip file holds, by the place below ``root`` where it belongs; all of it as it was exported."""
    with zipfile.ZipFile(file) as archive:
        if archive.getinfo(CONTENTS).file_size > _LARGEST_LIST:
            raise Refused(f"{file} was not made by this command.")
        hashes: dict[str, str] = json.loads(archive.read(CONTENTS))
        if _fingerprint(hashes) != fingerprint:
            raise Refused(f"{file} has the fingerprint {_fingerprint(hashes)}, not {fingerprint}.")
        contents: dict[Path, bytes] = {}
        for name, expected in hashes.items():
            parts = PurePosixPath(name).parts
            if not parts or ".." in parts or PurePosixPath(name).is_absolute() or set(name) & set("\\:\0"):
                raise Refused(f"{file} wants to write to {name!r}, which is outside of the store.")
            contents[root.joinpath(*parts)] = data = archive.read(name)
            if hashlib.sha256(data).hexdigest() != expected:
                raise Refused(f"{name} in {file} is damaged.")
    return contents


def _require_this_machine(contents: dict[Path, bytes]) -> None:
    here = [machine_description("cpu")]
    here += [machine_description(f"cuda:{index}") for index in range(torch.cuda.device_count())]
    for path, data in contents.items():
        if path.name != "entry.json":
            continue
        about = json.loads(data)["about"]
        if not any(machine.items() <= about.items() for machine in here):
            made_on = ", ".join(f"{name} {about.get(name)}" for name in here[-1])
            this = ", ".join(f"{name} {value}" for name, value in here[-1].items())
            raise Refused(f"The code was compiled on another machine ({made_on}); this is {this}.")


def _fingerprint(hashes: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()[:32]
