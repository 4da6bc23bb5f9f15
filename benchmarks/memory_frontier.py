"""How large an image fits into a memory budget, with and without Apply ToMe, until a step really runs out of memory.

    python benchmarks/memory_frontier.py [--quick] [--json PATH] [--threads N] [--latents SIDE ...]
                                         [--variants quality]

One sampling step of SD1.5 at its full width, sides in steps of 64 pixels. The budget is what a step may take beyond the
weights, with ComfyUI's attention_basic, which keeps all scores at once, as before fused attention. Going over it is a
real failure: on a GPU the allocator is limited, on Linux without one the process.
``--latents`` limits the sides that are tried, because large ones take minutes on a processor.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from shared.measuring import arguments
from shared.record import Row, collected, report
from shared.roof import place
from token_reduction import NONE, apply, chosen

# isort: split
from comfy_host.in_process import random_conditioning, sample
from paceline.optimizers.core.devices import is_out_of_memory
from shared.unets import unet

GIB = 2**30
BUDGETS = {"cuda": (1.0, 4.0, 16.0), "cpu": (0.5, 2.0, 4.0)}
"""GiB beyond the weights, by device."""

VARIANTS = (NONE, "merge 0.5", "preset quality")
NO_MEMORY_FOR_CODE = "could not create a primitive"
"""oneDNN's error when it gets no memory for its code."""

STEP = 8
"""Between sides of a latent: 64 pixels."""

SMALLEST, LARGEST = 32, {"cuda": 512, "cpu": 128}
ATTENTION = "attention_basic of ComfyUI: all scores at once, as before fused attention"


class Limit:
    """Limits what this process may take beyond what it has when this is made."""

    def __init__(self) -> None:
        self._now = self._taken()

    @staticmethod
    def _taken() -> int:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            return torch.cuda.memory_reserved()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        status = Path("/proc/self/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmData:")).split()[1])

    @contextmanager
    def to(self, extra: float) -> Iterator[None]:
        """Allow ``extra`` bytes and no more, until the context ends."""
        self._taken()  # what is held for nothing goes back first
        if torch.cuda.is_available():
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, (self._now + extra) / total))
            try:
                yield
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)
            return
        import resource

        before = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (int(self._now + extra), before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, before)


def step(model: Any, side: int) -> None:
    """Sample one step."""
    text = random_conditioning(model)
    sample(model, text, text, torch.zeros(1, 4, side, side), steps=1, cfg=1.0)


def fits(model: Any, limit: Limit, side: int, extra: float) -> bool:
    """Return whether a step of this side runs within ``extra`` bytes."""
    try:
        with limit.to(extra):
            step(model, side)
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_out_of_memory(error) and NO_MEMORY_FOR_CODE not in str(error):
            raise
        return False
    return True


def measure_alone(name: str, size: float, sides: list[int], width: int, threads: int) -> Row:
    """Find one frontier. Runs in a process of its own: what an earlier one has kept would count for this one."""
    torch.set_num_threads(threads)
    with torch.inference_mode():
        model = unet("SD1.5", width)
        step(model, SMALLEST)  # threads and libraries take their own memory once
        variant = apply(model, name, "sd15").clone()
        basic = resolve_name("comfy.ldm.modules.attention:attention_basic")
        override = {"optimized_attention_override": lambda func, *args, **kwargs: basic(*args, **kwargs)}
        variant.model_options["transformer_options"] |= override
        limit = Limit()
        fitting = bisect_left(sides, True, key=lambda side: not fits(variant, limit, side, size * GIB))
    largest = sides[fitting - 1] if fitting else 0
    found = {"pixels": 8.0 * largest}
    if fitting < len(sides):
        found["pixels_failed"] = 8.0 * sides[fitting]
    work = f"{ATTENTION}; {size:g} GiB beyond the weights"
    return Row(name, work, quality=found)


def main() -> None:
    """Find all frontiers."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    device = place()[0].type
    largest = 64 if options.quick else LARGEST[device]
    sides = sorted(options.latents or range(SMALLEST, largest + 1, STEP))
    names = chosen(options.variants, VARIANTS[:2] if options.quick else VARIANTS)

    def frontiers() -> Iterator[Row]:
        for name in names:
            for size in (0.125,) if options.quick else BUDGETS[device]:
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    work = (name, size, sides, 64 if options.quick else 320, torch.get_num_threads())
                    yield process.submit(measure_alone, *work).result()

    notes = {
        "beyond the weights": "with the allocator (GPU) or the process (CPU) really limited to it",
        "pixels": "side of the largest square image that fits, in steps of 64, 0 if none; one step of SD1.5 at full "
        "width, batch 1, no guidance",
        "pixels_failed": "the next size, which ran out of memory; none if no larger one was tried",
    }
    report(collected(frontiers(), NONE), NONE, options.json, notes)


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--latents", type=int, nargs="+", metavar="SIDE", help="sides of the latents")
    parser.add_argument("--variants", nargs="+", metavar="PART", help="those with this in their names")


if __name__ == "__main__":
    main()
