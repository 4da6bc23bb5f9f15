"""Where things are: this repository, its cache, and the ComfyUI that hosts it.

Nothing here imports torch or ComfyUI, so scripts can use it before anything is installed.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

DEFAULT_COMFYUI_VERSION = "0.30.0"

ROOT = Path(__file__).resolve().parents[2]
"""The root of this repository, which is also the node pack's folder."""


class HostMissing(RuntimeError):
    """ComfyUI has not been set up, or the folder that was named is not ComfyUI."""


def commit() -> str | None:
    """Return the repository's commit, marked where files differ from it; None without a repository or git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def cache_dir() -> Path:
    """Return the folder for everything that is downloaded or generated; ``PACELINE_CACHE`` overrides it."""
    override = os.environ.get("PACELINE_CACHE")
    return Path(override).expanduser().resolve() if override else ROOT / ".cache"


def venv_dir() -> Path:
    """Return the virtual environment's folder; ``PACELINE_VENV`` overrides it."""
    override = os.environ.get("PACELINE_VENV")
    return Path(override).expanduser().resolve() if override else ROOT / ".venv"


def is_comfyui(folder: Path) -> bool:
    """Say whether ``folder`` looks like a ComfyUI checkout."""
    return all((folder / name).exists() for name in ("main.py", "nodes.py", "comfy", "comfy_extras"))


def host_dir() -> Path:
    """Return the folder of the ComfyUI to use: ``COMFYUI_PATH``, or the one that the set-up fetched.

    Raises:
        HostMissing: if there is none, with what to do.
    """
    given = os.environ.get("COMFYUI_PATH")
    if given:
        folder = Path(given).expanduser().resolve()
        if not is_comfyui(folder):
            raise HostMissing(
                f"COMFYUI_PATH is {folder}, which is not a ComfyUI folder (no main.py, nodes.py and comfy/). "
                "Point it at the folder that holds ComfyUI's main.py, or unset it."
            )
        return folder
    folder = cache_dir() / "ComfyUI" / (os.environ.get("COMFYUI_VERSION") or DEFAULT_COMFYUI_VERSION)
    if not is_comfyui(folder):
        raise HostMissing(f"ComfyUI is not set up: there is none in {folder}. Run `make setup` first.")
    return folder
