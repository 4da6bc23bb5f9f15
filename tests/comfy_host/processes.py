"""Processes that end with us, and what the operating system knows about them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

_FOLDER_PREFIX = "paceline-comfyui-"
_STOP_SECONDS = 10.0
# Looked up now: in a child, a lock that another thread of its parent held at that moment is never released.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def free_port() -> int:
    """Return a TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def die_with_parent() -> None:
    """Run in the child before it becomes ComfyUI: ask Linux to end it when this process ends, however that is."""
    parent_death_signal = 1  # PR_SET_PDEATHSIG
    _prctl(parent_death_signal, signal.SIGKILL)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads its group, and the group; politely first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            if not _group_lives(process.pid):
                return


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def temporary_folder() -> Path:
    """Make a folder for this process, and delete those of processes that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*-*"):
        owner = folder.name[len(_FOLDER_PREFIX) :].split("-")[0]
        if owner.isdigit() and not _lives(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
