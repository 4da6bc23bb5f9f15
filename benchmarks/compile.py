"""Compile UNet's first images, against no compilation and ComfyUI's TorchCompileModel.

    python benchmarks/compile.py [--quick] [--json PATH] [--threads N] [--only start]

Seconds to the first image, in a new process each: nothing kept, kept by an earlier process, and again in the same
process. How both bear changes of a workflow is in peers.py; what a step gains on a card, in stacks.py.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from shared.measuring import arguments
from shared.nodes import Apply, core_compile, node
from shared.record import Row, report

# isort: split
from comfy_host import checkpoints, in_process
from shared.unets import unet

EAGER, CORE, OURS = "no compilation", "ComfyUI TorchCompileModel", "Compile UNet"
VARIANTS: dict[str, Apply] = {
    EAGER: lambda patcher: patcher,
    CORE: core_compile("inductor"),
    OURS: node("PacelineCompileUNet", backend="inductor", mode="default"),
}
RUNS = (
    (EAGER, EAGER, "eager"),
    (f"{CORE}, cold", CORE, "core"),
    (f"{OURS}, cold", OURS, "ours"),
    (f"{OURS}, kept by an earlier process", OURS, "restarted"),
)
"""Names of rows, what compiles, and where the process has its temporary files, as after a restart of the machine."""
NOTES = {
    "start": "work 'first image': model in memory, nothing compiled; 'kept' was compiled by an earlier process; "
    "speedup: seconds of 'Compile UNet, cold' / seconds",
}


def model(quick: bool) -> Any:
    """Return a MODEL: SD1.5 itself on a GPU; on a CPU its three upper levels, which compile in two minutes."""
    if torch.cuda.is_available() and not quick:
        return unet("SD1.5")
    return checkpoints.tiny_sd15(width=64, context=96) if quick else checkpoints.tiny_sd15(width=320, context=768)


def sample(patcher: Any, side: int, steps: int, **options: Any) -> torch.Tensor:
    """Sample one image with both passes."""
    conditioning = options.pop("conditioning", None) or in_process.random_conditioning(patcher, seed=1)
    size = options.pop("size", (side, side))
    latent = torch.zeros(options.pop("batch", 1), 4, *size)
    negative = options.pop("negative", None) or in_process.random_conditioning(patcher, seed=2)
    return in_process.sample(patcher, conditioning, negative, latent, steps=steps, seed=7, **options)


def two_images(variant: str, user: Path, side: int, steps: int, threads: int, quick: bool) -> tuple[list[float], int]:
    """Return how long the first and the second image take in this process, and how often kept code was used."""
    torch.set_num_threads(threads)
    in_process.bootstrap(cpu=quick or not torch.cuda.is_available())
    import folder_paths

    folder_paths.set_user_directory(str(user))  # in which Compile UNet keeps compiled code
    patcher, seconds = VARIANTS[variant](model(quick)), []
    for _ in range(2):
        started = time.perf_counter()
        sample(patcher, side, steps)
        seconds.append(time.perf_counter() - started)
    if variant != OURS:
        return seconds, 0
    technique = patcher.get_attachment("paceline").find("compilation")
    return seconds, next(iter(technique.policy.used)).functions[0].state.cache_hits


def measure(folder: Path, side: int, steps: int, quick: bool) -> Iterator[Row]:
    """Run each variant in a process of its own; ours twice, with one folder for what it keeps."""
    for name, variant, temporary in RUNS:
        (folder / temporary).mkdir()
        with (
            patch.dict(os.environ, TMPDIR=str(folder / temporary)),
            ProcessPoolExecutor(1, get_context("spawn")) as process,
        ):
            os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
            given = (variant, folder / f"user of {variant}", side, steps, torch.get_num_threads(), quick)
            seconds, hits = process.submit(two_images, *given).result()
        for which, taken in zip(("first", "second"), seconds, strict=True):
            print(f"  {name}: {which} image {taken:.1f} s", flush=True)
            work = f"{which} image in a new process, {steps} steps, latent {side}x{side}, random weights"
            yield Row(name, work, taken, taken, taken, quality={"cache_hits": float(hits)}, rounds=1)


def main() -> None:
    """Measure all of them."""
    options = arguments(__doc__.splitlines()[0], only=("start",))
    with tempfile.TemporaryDirectory() as name:
        rows = sorted(measure(Path(name), 32 if options.quick else 64, 2, options.quick), key=lambda row: row.work)
    cold = {row.work: row.seconds_median for row in rows if row.name == f"{OURS}, cold"}
    for row in rows:
        row.speedup = cold[row.work] / row.seconds_median
    report(rows, EAGER, options.json, NOTES)


if __name__ == "__main__":
    main()
