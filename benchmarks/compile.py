"""Compile UNet against no compilation and against ComfyUI's TorchCompileModel.

    python benchmarks/compile.py [--quick] [--json PATH] [--threads N] [--only start|steps]

start: seconds to the first image, in a new process each: nothing kept, kept by an earlier process, and again in the
same process. steps: one sampling step of images after the first, interleaved; what `start` has compiled is used.
How both bear changes of a workflow is in peers.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from shared.measuring import arguments, measure, relative_error
from shared.nodes import tome
from shared.record import ROOT, Row, report, table, write
from shared.unets import unet

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host import checkpoints, in_process  # noqa: E402
from comfy_host.pack import load_nodes  # noqa: E402

EAGER, CORE, OURS = "no compilation", "ComfyUI TorchCompileModel", "Compile UNet"
REDUCED, OURS_REDUCED = "Apply ToMe", "Apply ToMe + Compile UNet"
NOTES = {
    "start": "work 'first image': model in memory, nothing compiled; 'kept' was compiled by an earlier process; "
    "speedup: seconds of 'Compile UNet, cold' / seconds",
}


def model(quick: bool) -> Any:
    """Return a MODEL: SD1.5 itself on a GPU; on a CPU its three upper levels, which compile in two minutes."""
    on_gpu = torch.cuda.is_available()
    if on_gpu and not quick:
        return unet("SD1.5", 320, torch.float16, cpu=False)
    in_process.bootstrap(cpu=True)
    return checkpoints.tiny_sd15(width=64, context=96) if quick else checkpoints.tiny_sd15(width=320, context=768)


def sample(patcher: Any, side: int, steps: int, **options: Any) -> torch.Tensor:
    """Sample one image with both passes."""
    conditioning = options.pop("conditioning", None) or in_process.random_conditioning(patcher, seed=1)
    size = options.pop("size", (side, side))
    latent = torch.zeros(options.pop("batch", 1), 4, *size)
    negative = options.pop("negative", None) or in_process.random_conditioning(patcher, seed=2)
    return in_process.sample(patcher, conditioning, negative, latent, steps=steps, seed=7, **options)


def with_core(patcher: Any, backend: str = "inductor") -> Any:
    """Apply ComfyUI's node; for another backend, what it does inside."""
    from comfy_api.torch_helpers import set_torch_compile_wrapper
    from comfy_extras.nodes_torch_compile import skip_torch_compile_dict

    clone = patcher.clone()
    set_torch_compile_wrapper(model=clone, backend=backend, options={"guard_filter_fn": skip_torch_compile_dict})
    return clone


def with_ours(patcher: Any, **settings: Any) -> Any:
    """Apply Compile UNet."""
    settings = {"backend": "inductor", "mode": "default", **settings}
    return load_nodes()["PacelineCompileUNet"].execute(model=patcher, **settings).args[0]


def with_tome(patcher: Any) -> Any:
    """Apply ToMe as it is chosen for images of this size."""
    return tome(method="kv_downsample", ratio=0.75)(patcher)


VARIANTS: dict[str, Callable[[Any], Any]] = {
    EAGER: lambda patcher: patcher,
    CORE: with_core,
    OURS: with_ours,
    REDUCED: with_tome,
    OURS_REDUCED: lambda patcher: with_ours(with_tome(patcher)),
}


def state(patcher: Any) -> Any:
    """Return the state of our compiled function."""
    technique = patcher.get_attachment("paceline").find("compilation")
    return next(iter(technique.policy.used)).functions[0].state


def child(variant: str, side: int, steps: int, threads: int, quick: bool) -> None:
    """Print how long the first and the second image take in this process."""
    torch.set_num_threads(threads)
    patcher = VARIANTS[variant](model(quick))
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        sample(patcher, side, steps)
        seconds.append(time.perf_counter() - started)
    hits = state(patcher).cache_hits if variant == OURS else 0
    print(json.dumps({"first": seconds[0], "second": seconds[1], "cache_hits": hits}))


def measure_start(folder: Path, side: int, steps: int, quick: bool) -> list[Row]:
    """Run each variant in a process of its own; ours twice, with one folder for what it keeps."""
    rows = []
    for name, variant, user, inductor in (
        (EAGER, EAGER, "eager", "eager"),
        (f"{CORE}, cold", CORE, "core", "core"),
        (f"{OURS}, cold", OURS, "ours", "ours"),
        (f"{OURS}, kept by an earlier process", OURS, "ours", "restarted"),
    ):
        environment = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}
        # Each process has temporary files of its own, as after a restart of the machine.
        temporary = folder / "tmp" / inductor
        temporary.mkdir(parents=True, exist_ok=True)
        environment |= {"TMPDIR": str(temporary), "PACELINE_BENCHMARK_USER": str(folder / "user" / user)}
        given = [
            "--child",
            variant,
            str(side),
            str(steps),
            str(torch.get_num_threads()),
            *(["--quick"] if quick else []),
        ]
        command = [sys.executable, __file__, *given]
        output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(output.splitlines()[-1])
        print(f"  {name}: first image {found['first']:.1f} s, second {found['second']:.1f} s", flush=True)
        for which in ("first", "second"):
            taken = found[which]
            work = f"{which} image in a new process, {steps} steps, latent {side}x{side}, random weights"
            hits = {"cache_hits": float(found["cache_hits"])}
            rows.append(Row(name, work, taken, taken, taken, 0.0, 0.0, 0, hits, rounds=1))
    for work in {row.work for row in rows}:
        same = [row for row in rows if row.work == work]
        cold = next(row for row in same if row.name == f"{OURS}, cold")
        for row in same:
            row.speedup = cold.seconds_median / row.seconds_median
    return sorted(rows, key=lambda row: row.work)


def measure_steps(side: int, rounds: int, quick: bool) -> list[Row]:
    """Time images after the first, all variants in one process, taking turns."""
    base = model(quick)
    patchers = {name: apply(base) for name, apply in VARIANTS.items()}
    images = {name: sample(patcher, side, 1) for name, patcher in patchers.items()}
    reference = {name: images[REDUCED if REDUCED in name else EAGER] for name in images}
    return measure(
        f"one sampling step, both passes, latent {side}x{side}, random weights",
        {name: partial(sample, patcher, side, 1) for name, patcher in patchers.items()},
        EAGER,
        rounds=rounds,
        quality={name: {"relative_error": relative_error(images[name], reference[name])} for name in images},
    )


def main() -> None:
    """Run the parts that were asked for."""
    if "--child" in sys.argv:
        at = sys.argv.index("--child")
        _keep_in(Path(os.environ["PACELINE_BENCHMARK_USER"]))
        side, steps, threads = map(int, sys.argv[at + 2 : at + 5])
        child(sys.argv[at + 1], side, steps, threads, "--quick" in sys.argv)
        return
    options = arguments(__doc__.splitlines()[0], only=("start", "steps"))
    side, rounds = (32, 7) if options.quick else (64, 7)
    rows: list[Any] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only in (None, "start"):
            started = measure_start(folder, side, 2, options.quick)
            print(table(started))
            rows += [vars(row) for row in started]
            tempfile.tempdir = str(folder / "tmp" / "core")  # where the process with core's node has compiled
        if options.only in (None, "steps"):
            _keep_in(folder / "user" / "ours")
            steps = measure_steps(side, rounds, options.quick)
            report(steps, EAGER, None)
            rows += [vars(row) for row in steps]
    if options.json is not None:
        write(options.json, rows, EAGER, NOTES)


def _keep_in(folder: Path) -> None:
    """Let ComfyUI's user folder, in which Compile UNet keeps compiled code, be ``folder``."""
    in_process.bootstrap(cpu=not torch.cuda.is_available())
    import folder_paths

    folder_paths.set_user_directory(str(folder))


if __name__ == "__main__":
    main()
