"""How large an image fits into a memory budget, with and without Apply ToMe, until a step really runs out of memory.

    python benchmarks/memory_frontier.py [--quick] [--json PATH] [--threads N] [--latents SIDE ...]
                                         [--only best|plain] [--variants balanced]

One sampling step of SD1.5 at its full width, sides in steps of 64 pixels. The budget is what a step may take beyond the
weights. Going over it is a real failure: on a GPU the allocator is limited, on Linux without one the process.
``--latents`` limits the sides that are tried, because large ones take minutes on a processor.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from shared.measuring import arguments, peak_memory
from shared.record import ROOT, Row, keep, report
from shared.unets import unet
from token_reduction import NONE, apply, chosen

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.in_process import random_conditioning, sample  # noqa: E402
from paceline.core.devices import is_out_of_memory  # noqa: E402

GIB = 2**30
BUDGETS: dict[str, dict[str, tuple[float, ...]]] = {
    "cuda": {"best": (1.0, 4.0), "plain": (1.0, 4.0, 16.0)},
    "cpu": {"best": (0.5,), "plain": (0.5, 2.0, 4.0)},
}
"""GiB beyond the weights, by device and attention; small ones for the best attention, which needs next to nothing."""

VARIANTS = (NONE, "merge 0.5", "preset quality", "preset balanced", "preset fast")
NO_MEMORY_FOR_CODE = "could not create a primitive"
"""oneDNN's error when it gets no memory for its code."""

STEP = 8
"""Between sides of a latent: 64 pixels."""

SMALLEST, SECOND, LARGEST = 32, 48, {"cuda": 512, "cpu": 128}
ATTENTION = {
    "best": "ComfyUI's PyTorch attention",
    "plain": "attention_basic of ComfyUI: all scores at once, as before fused attention",
}


def plain_attention(func: Any, *args: Any, **kwargs: Any) -> Any:
    """ComfyUI's override hook: the scores of all heads in memory at once."""
    from comfy.ldm.modules.attention import attention_basic

    return attention_basic(*args, **kwargs)


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


class Steps:
    """Sampling steps of one variant, each side run as seldom as possible."""

    def __init__(self, model: Any, sides: list[int], limit: Limit) -> None:
        self.model = model
        self.limit = limit
        self.conditioning = random_conditioning(model)
        self.sides = sides
        self._peaks: dict[int, int] = {}

    def run(self, side: int) -> None:
        """Run one step."""
        sample(self.model, self.conditioning, self.conditioning, torch.zeros(1, 4, side, side), steps=1, cfg=1.0)

    def fits(self, side: int, extra: float) -> bool:
        """Return whether a step of this side runs within ``extra`` bytes."""
        # What its tensors alone hold is a lower bound: no need to run into it again.
        if self._peaks.get(side, 0) > extra:
            return False
        try:
            with self.limit.to(extra):
                self._peaks[side] = peak_memory(partial(self.run, side))
        except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
            if not is_out_of_memory(error) and NO_MEMORY_FOR_CODE not in str(error):
                raise
            return False
        return True

    @cached_property
    def growth(self) -> tuple[float, float]:
        """Factors of ``side**2`` and ``side**4`` in the memory of a step, from two small ones."""
        (s, p), (t, q) = ((side, peak_memory(partial(self.run, side))) for side in (SMALLEST, SECOND))
        fourth = (q / t**2 - p / s**2) / (t**2 - s**2)
        return p / s**2 - fourth * s**2, fourth

    def guess(self, extra: float) -> int:
        """Return the index of the largest side that should fit; only where to begin."""
        second, fourth = self.growth
        fitting = [i for i, side in enumerate(self.sides) if second * side**2 + fourth * side**4 <= extra]
        return max(fitting, default=0)

    def frontier(self, extra: float) -> tuple[int, int | None, int]:
        """Return the index of the largest side that fits (-1: none), that of the next one if it fails, and the peak."""
        index, failed = self.guess(extra), None
        while index >= 0 and not self.fits(self.sides[index], extra):
            failed = index
            index -= 1
        while failed is None and index + 1 < len(self.sides):
            if self.fits(self.sides[index + 1], extra):
                index += 1
            else:
                failed = index + 1
        return index, failed, self._peaks[self.sides[index]] if index >= 0 else 0


def measure_alone(name: str, key: str, size: float, sides: list[int], width: int, threads: int) -> Row:
    """Find one frontier. Runs in a process of its own: what an earlier one has kept would count for this one."""
    on_gpu = torch.cuda.is_available()
    torch.set_num_threads(threads)
    with torch.inference_mode():
        model = unet("SD1.5", width, torch.float16 if on_gpu else torch.float32, cpu=not on_gpu)
        Steps(model, sides, Limit()).run(SMALLEST)  # threads and libraries take their own memory once
        variant = apply(model, name).clone()
        if key == "plain":
            variant.model_options["transformer_options"]["optimized_attention_override"] = plain_attention
        index, failed, peak = Steps(variant, sides, Limit()).frontier(size * GIB)
    found = {"pixels": 8.0 * sides[index] if index >= 0 else 0.0}
    found |= {} if failed is None else {"pixels_failed": 8.0 * sides[failed]}
    return Row(name, f"{ATTENTION[key]}; {size:g} GiB beyond the weights", peak_memory_bytes=peak, quality=found)


def main() -> None:
    """Find all frontiers."""
    options = arguments(__doc__.splitlines()[0], only=tuple(ATTENTION), latents=True)
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    largest = 64 if options.quick else LARGEST[device]
    sides = options.latents or list(range(SMALLEST, largest + 1, STEP))
    names = chosen(options.variants, VARIANTS[:2] if options.quick else VARIANTS)
    rows: list[Row] = []
    for key in ATTENTION:
        if options.only not in (None, key):
            continue
        for name in names:
            for size in (0.125,) if options.quick else BUDGETS[device][key]:
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    work = (name, key, size, sides, 64 if options.quick else 320, torch.get_num_threads())
                    row = process.submit(measure_alone, *work).result()
                rows.append(row)
                keep([asdict(row)], NONE)
                print(f"{row.name}, {row.work}: {row.quality['pixels']:g}", file=sys.stderr, flush=True)
    notes = {
        "beyond the weights": "with the allocator (GPU) or the process (CPU) really limited to it",
        "pixels": "side of the largest square image that fits, in steps of 64, 0 if none; one step of SD1.5 at full "
        "width, batch 1, no guidance",
        "pixels_failed": "the next size, which ran out of memory; none if no larger one was tried",
    }
    report(rows, NONE, options.json, notes)


if __name__ == "__main__":
    main()
