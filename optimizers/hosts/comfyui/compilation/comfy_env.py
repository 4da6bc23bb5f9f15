"""What a compilation needs of ComfyUI: a place for compiled code, a node to report to, and the Cancel button."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from .....core.phrases import data
from ....compilation.artifacts import ArtifactStore
from ....compilation.compiler import Compiler
from ..paths import user_folder
from ..reporting import send

if TYPE_CHECKING:
    from ....compilation.progress import Progress


COMPILE_EVENT = "paceline.compile"
"""Websocket event, sent about once a second while something is compiled."""


class NodeObserver:
    """Shows the progress of a compilation at a node, and stops it when the user presses Cancel."""

    def __init__(self, node_id: str | None) -> None:
        self._node_id = node_id

    def progress(self, progress: Progress) -> None:
        """Show e.g. ``compiling 00:42 · graph 3``."""
        payload = {
            "phase": progress.phase,
            "headline": progress.text,
            "phrase": data(progress.text),
            "seconds": progress.seconds,
            "graph": progress.graph,
            "expected_seconds": progress.expected_seconds,
        }
        send(COMPILE_EVENT, self._node_id, payload)

    def check_cancelled(self) -> None:
        """Raise ComfyUI's own exception if the user has cancelled."""
        import comfy.model_management

        comfy.model_management.throw_exception_if_processing_interrupted()


class NodeCompiler(Compiler):
    """Compiles for nodes: keeps code in ComfyUI's user folder, and shows progress at the node."""

    def store(self) -> ArtifactStore | None:
        """Return where compiled code is kept."""
        return artifact_store()

    def observer(self, node_id: str | None) -> NodeObserver:
        """Return what watches the compilations of a node."""
        return NodeObserver(node_id)


@cache
def node_compiler() -> NodeCompiler:
    """Return the compiler of all nodes: what one has compiled, another need not compile again."""
    return NodeCompiler()


def artifact_store() -> ArtifactStore | None:
    """Return where compiled code is kept: in ComfyUI's user folder; None outside of a running ComfyUI."""
    # Looked up, never imported: importing it reads the command line.
    return ArtifactStore(user_folder("compiled")) if "folder_paths" in sys.modules else None
