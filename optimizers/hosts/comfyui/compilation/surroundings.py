"""What a compilation needs of ComfyUI: a place for compiled code, a node to report to, and the Cancel button."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from ....compilation import ArtifactStore, Progress
from ..paths import user_folder
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
    # Looked up, never imported: importing it reads the command line.
    return _store(user_folder("compiled")) if "folder_paths" in sys.modules else None


@cache
def _store(folder: Path) -> ArtifactStore:
    return ArtifactStore(folder)
