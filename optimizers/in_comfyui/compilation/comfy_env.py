"""What a compilation needs of ComfyUI: a place for compiled code, a node to tell, Cancel, and a whole network."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

from ...compilation.cache_folder import CacheFolder
from ...compilation.compiler import Compiler
from ...compilation.progress import READY, Progress
from ...core.activity import Summary
from ..run.reporting import send, summary_payload
from ..structure.protocols import ModelPatcher, NetworkPatcher
from ..structure.user_folder import user_folder

COMPILE_EVENT = "paceline.compile"
"""Websocket event with `ActivityPayload` of web/js/payloads.d.ts, sent about once a second while something compiles."""


class TooLong(RuntimeError):
    """Something was compiled for longer than it was given."""


_until = math.inf
"""When what is compiled now has to be ready."""


@contextmanager
def compiled_until(deadline: float) -> Iterator[None]:
    """Stop each compilation at a time of ``time.monotonic``, with `TooLong`."""
    global _until
    before, _until = _until, deadline
    try:
        yield
    finally:
        _until = before


def watch(node_id: str | None, progress: Progress | None) -> None:
    """Show the progress of a compilation at a node; without any, raise an error if the user has pressed Cancel."""
    import comfy.model_management

    if progress is None:
        comfy.model_management.throw_exception_if_processing_interrupted()
        if time.monotonic() > _until:
            raise TooLong
        return
    told = summary_payload(Summary("working", progress.text, details=(progress.phase,)), "Paceline")
    send(COMPILE_EVENT, node_id, told | {"busy": progress.phase != READY})


@cache
def node_compiler() -> Compiler:
    """Return the compiler of all nodes, so that clones share compiled code."""
    return Compiler(cache_folder, lambda node_id: partial(watch, node_id))


def cache_folder() -> CacheFolder | None:
    """Return where compiled code is kept: in ComfyUI's user folder; None outside of a running ComfyUI."""
    # Looked up, never imported: importing it reads the command line.
    return CacheFolder(user_folder("compiled")) if "folder_paths" in sys.modules else None


_NOT_LOADED = "the network is not loaded completely; compiled code needs all of its weights on the device"
_DYNAMIC = "the network runs with dynamic VRAM, which cannot be compiled"
REPLACED = "another node has replaced this method of the network itself"


def refusal(patcher: ModelPatcher | NetworkPatcher | None, loaded: object) -> str | None:
    """Return why a live network cannot run compiled as it is now; None if it can.

    ``loaded`` is the module that ComfyUI loads: a BaseModel, or the network itself.
    """
    # ComfyUI then moves weights in and out inside of every layer, in Python that torch cannot compile.
    if patcher is not None and patcher.is_dynamic():
        return _DYNAMIC
    return _NOT_LOADED if getattr(loaded, "model_lowvram", False) else None
