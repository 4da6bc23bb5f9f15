"""Keep what torch compiles from one start to the next, in a folder of our own (``TORCHINDUCTOR_CACHE_DIR``).

The folder is bounded in size and must belong to the user alone: its files are programs that run with the user's rights.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import sys
from pathlib import Path

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
LIMIT_BYTES = 4 * 1024**3

_LONGEST_PATH = 259
_BELOW = len(r"\inductor\triton\0\tmp.pid_123456_\__grp__triton_poi__1234.json") + 52 + 36
"""Characters of the longest path below the folder: Triton adds a hash of 52 characters and a random name of 36."""

_refused: set[Path] = set()
"""Folders of which the log has said why they are not used."""


class CacheFolder:
    """A folder for compiled code, made at the first compilation; above ``LIMIT_BYTES`` the least recently read go."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def use(self) -> None:
        """Let inductor keep its code here from now on, if that is safe; a folder that the user has named stays."""
        named, ours = os.environ.get(VARIABLE), str(self.path / "inductor")
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        default = os.path.abspath(default_cache_dir())
        if named and named != ours and not Path(os.path.abspath(named)).is_relative_to(default):
            return
        try:
            refusal = self._prepare()
        except OSError as error:
            refusal = f"{type(error).__name__}: {error}"
        if refusal is None:
            os.environ[VARIABLE] = ours
            return
        if named == ours:
            del os.environ[VARIABLE]
        if self.path not in _refused:
            _refused.add(self.path)
            logging.warning("Paceline: compiled code is not kept in %s: %s", self.path, refusal)

    def _prepare(self) -> str | None:
        """Make the folder; return why it must not be used, or None."""
        if _is_too_deep(self.path):
            return "its path is too long for Windows; switch long paths on in Windows, or move ComfyUI up"
        self.path.mkdir(0o700, parents=True, exist_ok=True)
        if not _belongs_to_user_alone(self.path):
            return "others may write to it, and the code that is kept there is run as a program"
        self.trim()
        return None

    def size(self) -> int:
        return sum(size for _, size, _ in self._files())

    def trim(self) -> None:
        """Remove the files that were not read or written for the longest time until the rest is within the limit."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= LIMIT_BYTES:
                break
            with contextlib.suppress(OSError):  # Windows removes no library that is loaded
                path.unlink(missing_ok=True)
                total -= size

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _files(self) -> list[tuple[float, int, Path]]:
        """Return when each file was last read or written, its size in bytes, and its path."""
        found = []
        for path in self.path.rglob("*"):
            try:
                details = path.lstat()
            except OSError:  # removed in the meantime
                continue
            if stat.S_ISREG(details.st_mode):
                found.append((max(details.st_atime, details.st_mtime), details.st_size, path))
        return found


def _is_too_deep(folder: Path) -> bool:
    """Return whether Windows would not find what is kept in a folder, because its path is too long."""
    if sys.platform != "win32" or len(str(folder)) + _BELOW <= _LONGEST_PATH:
        return False
    try:
        import winreg

        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SYSTEM\CurrentControlSet\Control\FileSystem") as key:
            return not winreg.QueryValueEx(key, "LongPathsEnabled")[0]
    except (ImportError, OSError):
        return True


def _belongs_to_user_alone(folder: Path) -> bool:
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
