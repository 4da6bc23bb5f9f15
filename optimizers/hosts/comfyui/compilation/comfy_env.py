"""What a compilation needs of ComfyUI: a place for compiled code, a node to report to, and the Cancel button."""

from __future__ import annotations

import sys
from functools import cache

from .....core.phrases import data
from ....compilation.cache_folder import CacheFolder
from ....compilation.compiler import Compiler
from ....compilation.progress import Progress
from ..attention_owner import pack_of
from ..paths import user_folder
from ..reporting import send

COMPILE_EVENT = "paceline.compile"
"""Websocket event, sent about once a second while something is compiled."""


class NodeObserver:
    """Shows the progress of a compilation at a node, and stops it when the user presses Cancel."""

    def __init__(self, node_id: str | None) -> None:
        self._node_id = node_id

    def progress(self, progress: Progress) -> None:
        payload = {
            "phase": progress.phase,
            "headline": progress.text,
            "phrase": data(progress.text),
            "seconds": progress.seconds,
            "graph": progress.graph,
        }
        send(COMPILE_EVENT, self._node_id, payload)

    def check_cancelled(self) -> None:
        import comfy.model_management

        comfy.model_management.throw_exception_if_processing_interrupted()


@cache
def node_compiler() -> Compiler:
    """Return what compiles for all nodes, so that clones share what is compiled."""
    return Compiler(cache_folder, NodeObserver, pack_of)


def cache_folder() -> CacheFolder | None:
    """Return where compiled code is kept: in ComfyUI's user folder; None outside of a running ComfyUI."""
    # Looked up, never imported: importing it reads the command line.
    return CacheFolder(user_folder("compiled")) if "folder_paths" in sys.modules else None
