"""The machine: names of devices, waiting, out of memory, and switches of its arithmetic."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch

_TELLS_OF_COMPILING = hasattr(torch.compiler, "is_compiling")

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "defaultcpuallocator")


@cache
def processor_facts() -> Mapping[str, str]:
    """Return the entries of ``/proc/cpuinfo`` for the first CPU, by name; empty on systems without that file."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def processor_name() -> str:
    """Return the CPU's name."""
    return processor_facts().get("model name") or platform.processor() or platform.machine()


def device_name(device: torch.device | str) -> str:
    """Return the name of a device: a GPU's product name, the type of others."""
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def is_compiling() -> bool:
    """Return whether ``torch.compile`` traces the caller. torch 2.1, which WebUI brings, does not tell: never there."""
    return _TELLS_OF_COMPILING and torch.compiler.is_compiling()


def synchronize(device: torch.device) -> None:
    """Wait until a device has done all that it was given; does nothing for devices that work at once."""
    wait = getattr(getattr(torch, device.type, None), "synchronize", None)
    if wait is not None and device.type != "cpu":
        wait() if device.type == "mps" else wait(device)  # MPS is one device and takes no argument


def total_memory(device: torch.device) -> int:
    """Return the bytes of memory that a device has, for devices that do not tell the computer's; 8 GiB if unknown."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 8 * 2**30


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes means that memory ran out, on a device or on the processor."""
    while error is not None:
        if isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)):
            return True
        # torch's allocator for the processor raises a plain RuntimeError, and so do some devices'.
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY):
            return True
        error = error.__cause__
    return False


class _Switch:
    """Switches something of the whole process on while at least one thread is inside.

    ComfyUI runs the clones for several GPUs at once: the first that leaves must switch nothing off for the others, and
    the last one must put back what was there before the first came.
    """

    def __init__(self, on: Callable[[], AbstractContextManager[None]]) -> None:
        self._on, self._undo, self._lock, self._inside = on, ExitStack(), Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._undo.enter_context(self._on())
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._undo.close()


@contextmanager
def _fp16_accumulation() -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_accumulation
    matmul.allow_fp16_accumulation = True
    try:
        yield
    finally:
        matmul.allow_fp16_accumulation = before


@contextmanager
def _tf32() -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    with _tf32_of(matmul, matmul), _tf32_of(cudnn, getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)):
        yield


SWITCHES = {"fp16_accumulation": _Switch(_fp16_accumulation), "tf32": _Switch(_tf32)}
"""torch's faster arithmetic on NVIDIA GPUs; each puts back what there was before, also after an error."""


@contextmanager
def _tf32_of(backend: Any, *parts: Any) -> Iterator[None]:
    # Newer versions have a second name for the same switch, which must be put back too. The first is the one to use:
    # torch.compile reads it, and fails where only the second was set.
    second = [(part, part.fp32_precision) for part in parts if hasattr(part, "fp32_precision")]
    first = False
    # The first cannot be read where somebody has set the second only, to something else: then it is read beside "tf32".
    for wanted in (None, "tf32"):
        for part, value in second:
            part.fp32_precision = wanted or value
        try:
            first = backend.allow_tf32
            break
        except RuntimeError:
            continue
    if first and all(value == "tf32" for _, value in second):
        yield  # torch.set_float32_matmul_precision("medium") means it too, and cannot be read any more after a change
        return
    backend.allow_tf32 = True
    try:
        yield
    finally:
        backend.allow_tf32 = first
        for part, value in second:
            part.fp32_precision = value
