"""Files: JSON that somebody else may have written, large ones that appear whole or not at all, and digests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import PacelineError

_SPARE = 64 * 2**20
"""Bytes of free space to leave."""


def read_json(path: Path, limit: int = 1 << 24) -> Any:
    """Return the content of a JSON file of at most ``limit`` bytes; `ValueError`, with the reason, if that fails.

    The reason does not hold the folder: who sends a workflow need not know it.
    """
    try:
        if path.stat().st_size > limit:
            raise ValueError(f"it has more than {limit} bytes")
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(error.strerror or "it cannot be opened") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; `ValueError` if it is none, or has too many brackets inside of each other."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None


class NotEnoughSpace(PacelineError):
    """The file would not fit on its disk."""


class NotWritten(PacelineError, OSError):
    """A file could not be written: no space is left, or its folder may not be written to."""


def require_space(folder: Path, size: int) -> None:
    """Check that ``size`` bytes fit into ``folder``; `NotEnoughSpace` if not."""
    existing = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < size + _SPARE:
        raise NotEnoughSpace(
            f"The file needs {size / 1e6:.0f} MB, but the disk of its folder has only {free / 1e6:.0f} MB left.",
            "Free some space, or choose another output directory (ComfyUI's --output-directory).",
        )


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a temporary file beside ``path`` and move it there; `NotWritten` if that fails.

    On any failure nothing is left behind.
    """
    # Without the file's own name, which can be as long as names can be.
    temporary = path.with_name(f".{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        temporary.chmod(0o644)  # safetensors makes it private
        os.replace(temporary, path)
    except Exception as error:
        # safetensors raises an error class of its own, with details that users do not need
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        found = (error.strerror or str(error)) if isinstance(error, OSError) else ""
        why = found or "there was no space left, or the folder may not be written to"
        remedy = "Free some space, or let this program write to its folder."
        raise NotWritten(f"{path.name} could not be written: {why}.", remedy) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def fingerprint_of(content: object) -> str:
    """Return the SHA-256 of data that JSON can hold, whatever the order of its keys; other values as text."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
