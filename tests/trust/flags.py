"""Launch flags of ComfyUI that change memory, precision, attention or caching, and random graphs under each."""

from __future__ import annotations

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
