"""Compile what the stages of on_gpu.sh measure afterwards, many side by side: alone each takes one to two minutes.

    python benchmarks/gpu/compile_ahead.py [--at-once 8] [--rehearse] NAME ...

Each NAME is a piece of work of stacks.py. What its variants compile is in torch's cache on disk, where later processes
find it (TORCHINDUCTOR_CACHE_DIR): their first pictures take the time of reading it. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STACKS = Path(__file__).resolve().parents[1] / "stacks.py"
FIRST = ("+ Compile UNet and VAE", "ComfyUI's TorchCompileModel", "+ Quantize int8")
REST = ("+ channels last", "+ Fuse QKV", "+ Compile UNet and VAE, Apply ToMe quality")
DECODED = ("Compile VAE", "VAE Precision: channels last, Compile VAE")
WORK = {
    "sdxl": ("--layout sdxl", (*FIRST, *REST)),
    "sd15": ("--layout sd15 --latent 64", FIRST),
    "sd15_batch8": ("--layout sd15 --latent 64 --batch 8", FIRST),
    "z_image": ("--layout z_image --cfg 1", FIRST),
    "flux": ("--layout flux --cfg 1", FIRST),
    "vae_sdxl": ("--layout vae_sdxl", DECODED),
    "vae_wan": ("--layout vae_wan", DECODED),
    "vae_wan_5b": ("--layout vae_wan_5b", DECODED),
    "vae_ltx": ("--layout vae_ltx", DECODED),
    "vae_hunyuan": ("--layout vae_hunyuan", DECODED),
    "vae_h3": ("--layout vae_h3", ("Compile VAE", "torchao int8, Compile VAE")),
}
TINY = "--quick --latent 8 --compiler eager"
WORKERS = "3"
"""Processes that compile kernels, of each program."""


def compile_one(name: str, variant: str, tiny: bool) -> bool:
    """Draw one picture with a variant in a process of its own; return whether that went well."""
    given = [*WORK[name][0].split(), *(TINY.split() if tiny else [])]
    command = [sys.executable, str(STACKS), *given, "--dynamic-vram", "--steps", "2", "--compile-only"]
    environment, begun = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": WORKERS}, time.perf_counter()
    ran = subprocess.run([*command, "--variants", variant], env=environment, capture_output=True, text=True)
    print(f"{name}, {variant}: status {ran.returncode} after {time.perf_counter() - begun:.0f} s", flush=True)
    if ran.returncode:
        print(*ran.stderr.splitlines()[-5:], sep="\n", flush=True)
    return ran.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=tuple(WORK), metavar="NAME", help=", ".join(WORK))
    parser.add_argument("--at-once", type=int, default=8, metavar="N")
    parser.add_argument("--rehearse", action="store_true", help="in tiny sizes, and compiling nothing")
    options = parser.parse_args()
    with ThreadPoolExecutor(options.at_once) as pool:
        work = [(name, variant) for name in options.names for variant in WORK[name][1]]
        waiting = [pool.submit(compile_one, *one, options.rehearse) for one in work]
    sys.exit(not all(one.result() for one in waiting))


if __name__ == "__main__":
    main()
