"""Faults of machines on real servers: killed, full disk, read-only, damaged files, two servers, launch flags."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import faults
import report
from graphs import Generator
from hosting import trust_server
from judge import Judge

_CPU = ["--cpu", "--use-pytorch-cross-attention"]
FLAGS = [
    *([*_CPU, *text.split()] for text in (
        "--fp16-unet", "--bf16-unet", "--fp32-unet", "--fp64-unet", "--fp8_e4m3fn-unet", "--fp8_e5m2-unet",
        "--force-fp16", "--force-fp32", "--fp16-intermediates", "--bf16-vae", "--fp16-vae", "--force-channels-last",
        "--disable-smart-memory", "--cache-classic", "--cache-lru 3", "--cache-none",  
          "--reserve-vram 2", "--force-upcast-attention", "--dont-upcast-attention",
        "--deterministic", "--fast", "--async-offload", "--disable-async-offload", "--disable-dynamic-vram",
        "--disable-pinned-memory", "--disable-metadata", "--multi-user", "--preview-method latent2rgb",
        "--enable-compress-response-body", "--force-non-blocking", "--disable-mmap",
    )),
    ["--cpu", "--use-split-cross-attention"],
    ["--cpu", "--use-quad-cross-attention"],
    ["--cpu"],
]  # fmt: skip
"""Each a list of arguments of a server. Those that a processor ignores show that we ignore them too."""


def under_flags(flags: list[str], graphs: int) -> tuple[int, list[str]]:
    """Judge random graphs on a server that was started with ``flags``."""
    problems, judged = [], 0
    with trust_server([], arguments=flags, cpu=False) as server, server.client() as client:
        generator, judge = (
            Generator(client.object_info(), compiled=0.0),
            Judge(client, server.output_dir, lambda: server.log),
        )
        for seed in range(5000, 5000 + graphs):
            graph = generator.graph(seed, quick=True)
            verdict = judge.judge(graph)
            judged += 1
            problems += [f"{graph}: {problem}" for problem in verdict.problems]
    return judged, problems


def try_faults(kills: int, graphs: int, minutes: float) -> dict[str, Any]:
    """Try all faults, none begun after so many minutes, and return what was found, for the table in docs/TRUST.md."""
    rows, wrong, tried = list[tuple[str, str]](), list[str](), 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)

        def on_one_server(what: str) -> faults.Found:
            with trust_server([], base_directory=base / what) as server, server.client() as client:
                if what == "damaged files":
                    return faults.damaged_files(client, server.base_directory, seed=0)
                if not faults.can_mount(base / "probe"):
                    return 0, []
                return faults.full_and_read_only_disks(client, server.base_directory)

        tries = {
            "SIGKILL while saving, comparing, sweeping": lambda: faults.kill_at_random_points(
                base / "killed", kills, 0
            ),
            "full and read-only disks": lambda: on_one_server("full disks"),
            "damaged files": lambda: on_one_server("damaged files"),
            "two servers with one user folder": lambda: faults.two_servers(base / "shared"),
            **{" ".join(flags): (lambda flags=flags: under_flags(flags, graphs)) for flags in FLAGS},
        }
        for name, attempt in tries.items():
            if time.monotonic() - begun > minutes * 60:
                continue
            try:
                count, problems = attempt()
            except Exception as error:
                count, problems = 1, [f"{type(error).__name__}: {error}"]
            tried, wrong = tried + count, wrong + problems
            rows.append((f"`{name}`" if name[:1] == "-" else name, f"{count} tried, {len(problems)} wrong"))
            print(f"{name}: {count} tried, {len(problems)} wrong", *problems, sep="\n  ", flush=True)
    return report.result(f"{tried} faults", rows, wrong, begun)
