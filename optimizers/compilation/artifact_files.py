"""The files of one kept entry: what it says of itself, whether it is whole, and who may write to it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Mapping
from functools import lru_cache
from math import inf
from pathlib import Path

from ...core.files import write_atomically

_FORMAT = 3
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a file of somebody else, or half of one, can raise."""

_LIBRARIES = (".so", ".pyd", ".dll", ".dylib")


_LONGEST_PATH = 259
_BELOW = len(r"\inductor\triton\tmp.pid_123456_\__grp__triton_poi__1234.json") + 52 + 36
"""Characters of the longest path below an entry: Triton adds a hash of 52 characters and a random name of 36."""


def is_too_deep(folder: Path) -> bool:
    """Return whether Windows would not find what is kept in a folder, because its path is too long."""
    if sys.platform != "win32" or len(str(folder)) + _BELOW <= _LONGEST_PATH:
        return False
    try:
        import winreg

        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SYSTEM\CurrentControlSet\Control\FileSystem") as key:
            return not winreg.QueryValueEx(key, "LongPathsEnabled")[0]
    except (ImportError, OSError):
        return True


def read_about(file: Path) -> dict[str, object] | None:
    """Return what an ``entry.json`` says, or None if it cannot be read or has another format."""
    try:
        content = json.loads(file.read_text("utf-8"))
        return dict(content["about"]) if content["format"] == _FORMAT else None
    except _DAMAGED:
        return None


def read_seconds(folder: Path) -> dict[str, float]:
    """Return how long each function took to compile the last time, by its name; empty if that is not known."""
    try:
        found = {str(name): float(value) for name, value in json.loads(_entry(folder))["seconds"].items()}
    except (*_DAMAGED, OverflowError):
        return {}
    return {name: value for name, value in found.items() if 0 <= value < inf}


def write_about(folder: Path, about: Mapping[str, object], seconds: Mapping[str, float]) -> None:
    """Write ``entry.json``; its time of change says when the entry was last used."""
    content = {"format": _FORMAT, "about": about, "libraries": _libraries(folder), "seconds": dict(seconds)}
    text = json.dumps(content, indent=1, default=str)
    write_atomically(folder / "entry.json", lambda file: file.write_text(text, "utf-8"))


def libraries_are_whole(folder: Path) -> bool:
    """Return whether the libraries that ``entry.json`` lists are there, byte for byte; others are removed.

    A library that was cut off (no space left, no power) does not raise an error when it is run: it ends the program.
    Of one that is not listed nobody can tell, and what needs it makes it again.
    """
    try:
        expected, found = json.loads(_entry(folder))["libraries"], _libraries(folder)
        for name in found.keys() - expected.keys():
            (folder / name).unlink()
        return all(found.get(name) == digest for name, digest in expected.items())
    except _DAMAGED:
        return False


def _entry(folder: Path) -> str:
    return (folder / "entry.json").read_text("utf-8")


def _libraries(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.suffix in _LIBRARIES and path.is_file())
    return {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(found)}


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file. Each graph that is compiled asks again for those of all before it."""
    details = path.stat()
    return _digest_of(path, details.st_size, details.st_mtime_ns, details.st_ctime_ns)


@lru_cache(maxsize=4096)
def _digest_of(path: Path, *_version: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below ``folder``."""
    total = 0
    for path in folder.rglob("*"):
        try:
            details = path.lstat()
        except OSError:  # removed in the meantime
            continue
        if stat.S_ISREG(details.st_mode):
            total += details.st_size
    return total


def belongs_to_user_alone(folder: Path) -> bool:
    """Return whether nobody else may write to ``folder``. On Windows the user's own profile is trusted."""
    if not hasattr(os, "getuid"):
        return True
    details = folder.stat()
    if details.st_mode & stat.S_IWGRP and not _is_own_group(details.st_gid):
        return False
    return details.st_uid in (os.getuid(), 0) and not details.st_mode & stat.S_IWOTH


def _is_own_group(number: int) -> bool:
    """Return whether a group has the user as its only member: many systems make one of the user's name."""
    import grp  # not on Windows
    import pwd

    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}
