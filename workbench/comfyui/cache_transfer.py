"""Carry compiled code to an identical machine of the same owner: the cache's folder in a zip file.

torch's ``save_cache_artifacts`` holds what the running process has compiled, so no command could save it, and leaves
out what the C++ compiler has built. First image of the smallest UNet (two cores, torch 2.13): cold 56 s, after an
import of torch's artifacts 49 s, after an import of this file 7 s, as after a restart.

Compiled code is a program that runs with your rights. So an import needs the fingerprint that the export has returned,
carried over in another way than the file.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from operator import methodcaller
from pathlib import Path, PurePosixPath

import torch

from ...core.devices import machine_description
from ...core.files import fingerprint_of, write_atomically
from ...optimizers.compilation.cache_folder import CacheFolder

CONTENTS = "contents.json"
"""Name of the file inside that says on which machine it was made, and lists all others with their hashes."""

_LARGEST_LIST = 64 * 2**20
"""Bytes; a list that unpacks to more was not made here."""

_DAMAGED = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError),
    *(KeyError, ValueError, TypeError, AttributeError, RecursionError),
)


class Refused(Exception):
    """The file cannot be imported; the text says why."""


def export_cache(folder: CacheFolder, file: Path) -> str:
    """Write everything in ``folder`` into a zip file and return its fingerprint.

    An earlier file of that name stays where it cannot be written. `Refused` if there is nothing to export.
    """
    hashes: dict[str, str] = {}
    contents = {"machines": _machines(), "files": hashes}
    found = [path for path in sorted(folder.path.rglob("*")) if path.is_file() and not path.is_symlink()]
    if not found:
        raise Refused(f"There is no compiled code in {folder.path}, so nothing was written.")

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w") as archive:

            def add(name: str, data: bytes | str) -> None:
                # Without a file's own time: zip has none before 1980, where a clock can have stood.
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)

            for path in found:
                name, data = path.relative_to(folder.path).as_posix(), _content(path)
                hashes[name] = hashlib.sha256(data).hexdigest()
                add(name, data)
            add(CONTENTS, json.dumps(contents, indent=1, sort_keys=True))

    write_atomically(file, write)
    return _fingerprint(contents)


def import_cache(folder: CacheFolder, file: Path, fingerprint: str) -> int:
    """Read a zip file of :func:`export_cache` into ``folder`` and return how many files it held.

    `Refused`, with nothing written, if the fingerprint, a file's hash, or the machine is another one.
    """
    try:
        files = _read(folder.path, file, fingerprint)
    except _DAMAGED as error:
        raise Refused(f"{file} cannot be read, or was not made by this command ({type(error).__name__}).") from error
    try:
        folder.path.mkdir(0o700, parents=True, exist_ok=True)
        for path, data in files.items():
            # Never into a file that is there: a ComfyUI that runs has it in memory, and dies of another content.
            write_atomically(path, methodcaller("write_bytes", data))
    except OSError as error:  # no space, or names that this disk cannot have
        raise Refused(f"{file} cannot be written to {folder.path}: {error}") from error
    return len(files)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:  # ComfyUI runs, and has removed it meanwhile
        raise Refused(f"{path} cannot be read: {error.strerror}. Nothing was written.") from error


def _read(root: Path, file: Path, fingerprint: str) -> dict[Path, bytes]:
    """Return what a zip file holds, checked, by the place below ``root`` where it belongs."""
    with zipfile.ZipFile(file) as archive:
        if archive.getinfo(CONTENTS).file_size > _LARGEST_LIST:
            raise Refused(f"{file} was not made by this command.")
        contents = json.loads(archive.read(CONTENTS))
        if _fingerprint(contents) != fingerprint:
            raise Refused(f"{file} has the fingerprint {_fingerprint(contents)}, not {fingerprint}.")
        _require_this_machine(contents["machines"])
        files: dict[Path, bytes] = {}
        for name, expected in contents["files"].items():
            parts = PurePosixPath(name).parts
            if not parts or ".." in parts or PurePosixPath(name).is_absolute() or set(name) & set("\\:\0"):
                raise Refused(f"{file} wants to write to {name!r}, which is outside of the cache's folder.")
            files[root.joinpath(*parts)] = data = archive.read(name)
            if hashlib.sha256(data).hexdigest() != expected:
                raise Refused(f"{name} in {file} is damaged.")
    return files


def _machines() -> list[dict[str, str]]:
    """Return the versions and hardware that compiled code depends on: once for the CPU, and for each GPU."""
    devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return [machine_description(device) for device in devices]


def _require_this_machine(made_on: list[dict[str, str]]) -> None:
    here = _machines()
    for machine in made_on:
        if machine not in here:
            there, this = (", ".join(f"{name} {value}" for name, value in one.items()) for one in (machine, here[-1]))
            raise Refused(f"The code was compiled on another machine ({there}); this is {this}.")


def _fingerprint(contents: object) -> str:
    return fingerprint_of(contents)[:32]
