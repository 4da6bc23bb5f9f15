"""The published recipe for fast SDXL in diffusers' own pipeline, for stacks.py.

Each row of https://huggingface.co/docs/diffusers/tutorials/fast_diffusion comes on top of those before it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .record import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from diffusers_host.pipelines import NamedPipeline, random_pipeline  # noqa: E402
from paceline import Attention, Compile, FuseQKV, Precision, QuantizeInt8, optimize  # noqa: E402

PROMPT = "a photo of an astronaut riding a horse on mars"


@dataclass(frozen=True)
class Variant:
    """A way to run the pipeline: what ``optimize`` is given, and the dtype that follows from it."""

    name: str
    settings: tuple[Any, ...]
    dtype: torch.dtype = torch.bfloat16


def variants(compiler: str) -> list[Variant]:
    """Return the rows of the recipe; the first one is its own starting point."""
    tuned = {"mode": "max-autotune", "preset": "diffusion-fast"} if compiler == "inductor" else {}
    compiled = Compile(backend=compiler, fullgraph=True, channels_last=True, strict=True, **tuned)
    plain, low = Attention("vanilla"), (Precision("bf16"), Attention("sdpa"))
    return [
        Variant("fp32, plain attention", (plain,), torch.float32),
        Variant("bf16, plain attention", (low[0], plain)),
        Variant("bf16, SDPA", low),
        Variant("bf16, SDPA, compiled", (*low, compiled)),
        Variant("bf16, SDPA, compiled, fused projections", (*low, compiled, FuseQKV())),
        Variant("bf16, SDPA, compiled, int8", (*low, compiled, QuantizeInt8())),
    ]


class Pipelines:
    """Pictures by SDXL with random weights: what they are (``work``), and the ways to draw them (``variants``).

    There are two pipelines, so that the first variant and another one can take turns.
    """

    memory = "all of both pipelines is on the device"
    together = False

    def __init__(self, options: argparse.Namespace) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        width = 32 if options.layout == "tiny" or options.quick else 320
        self._first, self._other = (random_pipeline("sdxl", width, device) for _ in range(2))
        self._options, self._size = options, 8 * options.latent
        self.variants = variants(options.compiler)
        pixels = f"{self._size} x {self._size}, batch {options.batch}"
        self.work = f"{options.steps} steps in diffusers: {self._first.about}, {pixels}, decoded"

    def dtype(self, variant: Variant) -> torch.dtype:
        """Return in what a variant computes."""
        return variant.dtype

    @contextmanager
    def ready(self, variant: Variant) -> Iterator[Callable[[], torch.Tensor]]:
        """Give what draws with a variant; at the end nothing of it is left on the pipeline."""
        pipeline = self._first if variant is self.variants[0] else self._other
        with optimize(pipeline.pipe, *variant.settings) as said:
            yield partial(self._draw, pipeline)
            print(said, file=sys.stderr, flush=True)

    def _draw(self, pipeline: NamedPipeline) -> torch.Tensor:
        prompts = [PROMPT] * self._options.batch
        drawn: torch.Tensor = pipeline.call(prompts, self._size, self._options.steps, output_type="pt")
        return drawn
