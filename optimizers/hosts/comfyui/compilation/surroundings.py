"""What a compilation needs of ComfyUI: a place for compiled code, a node to report to, and the Cancel button."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

from ....compilation import ArtifactStore, Progress
from ..reporting import show_progress


class NodeObserver:
    """Shows the progress of a compilation at a node, and stops it when the user presses Cancel."""

    def __init__(self, node_id: str | None) -> None:
        self._node_id = node_id

    def progress(self, progress: Progress) -> None:
        """Show e.g. ``compiling 00:42 · graph 3``."""
        show_progress(self._node_id, progress)

    def check_cancelled(self) -> None:
        """Raise ComfyUI's own exception if the user has cancelled."""
        import comfy.model_management

        comfy.model_management.throw_exception_if_processing_interrupted()


def artifact_store() -> ArtifactStore | None:
    """Return where compiled code is kept: in ComfyUI's user folder; None outside of a running ComfyUI."""
    folder_paths = sys.modules.get("folder_paths")  # never imported: it reads the command line
    return None if folder_paths is None else _store(user_folder(folder_paths))


def user_folder(folder_paths: Any) -> Path:
    """Return this pack's folder below ComfyUI's user folder, one that ComfyUI's HTTP interface cannot reach.

    ComfyUI lets a browser write into the folder of its user. What is kept here is run as a program, so it goes into
    one of the folders that start with two underscores: those are reachable on the machine only.
    """
    if hasattr(folder_paths, "get_system_user_directory"):
        return Path(folder_paths.get_system_user_directory("paceline"))
    return Path(folder_paths.get_user_directory()) / "__paceline"


@cache
def _store(folder: Path) -> ArtifactStore:
    return ArtifactStore(folder / "compiled")
