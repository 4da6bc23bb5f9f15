"""Questions about the machine: names of devices, waiting, out of memory."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

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
