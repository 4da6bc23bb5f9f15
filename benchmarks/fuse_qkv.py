"""Query, key and value from one matrix product instead of three: the products alone, and a whole step of each model.

    python benchmarks/fuse_qkv.py [--quick] [--json PATH] [--threads N] [--rounds 7]

The products have the sizes of one self-attention layer of each model. A step has the node Fuse QKV or not: SD1.5 and
SDXL at half of their width, the transformers as in models_today.py (one block, on a processor a quarter of the width
and of the tokens). Weights are random.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from models_today import MODELS, Made
from shared.measuring import arguments, measure, relative_error
from shared.nodes import node
from shared.record import Row, report
from shared.roof import place

# isort: split
from comfy_host.in_process import bootstrap, sample
from shared.unets import step_of, unet

SEPARATE, FUSED = "separate", "Fuse QKV"
PRODUCTS = {
    "SD1.5, 512 x 512, first level": (4096, 320),
    "SD1.5, 512 x 512, third level": (256, 1280),
    "SDXL, 1024 x 1024, first level": (4096, 640),
    "SDXL, 1024 x 1024, second level": (1024, 1280),
    "Qwen-Image, 512 x 512": (1024, 3072),
    "Wan 14B, 128 tokens": (128, 5120),
}
"""Tokens of the picture and channels, of self-attention."""

UNETS = {
    "SD1.5 with 160 of 320 channels, 256 x 256": ("SD1.5", 160, 32),
    "SDXL with 160 of 320 channels, 256 x 256": ("SDXL", 160, 32),
}
"""Layout, width, side of the latent."""

TRANSFORMERS = ("anima", "qwen_image")
NOTES = {
    "relative error": "of the fused result against the separate one: rounding, as one product adds up in another order",
    "roof share": "not given: both variants have the same multiplications",
}


def products(name: str, tokens: int, channels: int, rounds: int) -> list[Row]:
    """Measure the three products of one layer."""
    device, dtype = place(torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(3 * channels, channels, generator=generator).to(device, dtype) / channels**0.5
    x = torch.randn(1, tokens, channels, generator=generator).to(device, dtype)
    linear = torch.nn.functional.linear
    variants = {
        SEPARATE: lambda: [linear(x, weight) for weight in weights.chunk(3)],
        FUSED: lambda: linear(x, weights).chunk(3, dim=-1),
    }
    error = relative_error(torch.cat(variants[FUSED]()), torch.cat(variants[SEPARATE]()))
    work = f"products alone: {name}: {tokens} tokens, {channels} channels, {str(dtype)[6:]}"
    return measure(work, variants, SEPARATE, rounds=rounds, quality={FUSED: {"relative_error": error}})


def step(work: str, plain: Any, run: Callable[[Any], Any], rounds: int) -> list[Row]:
    """Measure one step of a MODEL, which ``run`` makes."""
    fused = node("PacelineFuseQKV")(plain)
    quality = {FUSED: {"relative_error": relative_error(run(fused), run(plain))}}
    variants = {SEPARATE: partial(run, plain), FUSED: partial(run, fused)}
    return measure(f"one step: {work}", variants, SEPARATE, rounds=rounds, quality=quality)


def unet_step(name: str, layout: str, width: int, side: int, rounds: int) -> list[Row]:
    """Measure one call of a UNet, as the sampler makes it."""
    model = unet(layout, width, place(torch.bfloat16)[1])

    def run(patcher: Any) -> torch.Tensor:
        torch.manual_seed(0)
        drawn: torch.Tensor = step_of(patcher, side)()
        return drawn

    return step(name, model, run, rounds)


def transformer_step(name: str, part: int, rounds: int) -> list[Row]:
    """Measure one step of a transformer's block in ComfyUI's sampler."""
    made = Made(MODELS[name], part, place(torch.bfloat16)[1])

    def run(patcher: Any) -> torch.Tensor:
        words = made.words
        drawn: torch.Tensor = sample(patcher, words, words, made.latent, seed=1, steps=1, cfg=1.0, scheduler="simple")
        return drawn

    size = "" if part == 1 else f", 1/{part} of the width and of the tokens"
    return step(f"{MODELS[name].name}, one block{size}", made.plain, run, rounds)


def main() -> None:
    options = arguments(
        __doc__.splitlines()[0], more=lambda parser: parser.add_argument("--rounds", type=int, default=7)
    )
    bootstrap(cpu=not torch.cuda.is_available())
    rounds = 1 if options.quick else options.rounds
    part = 16 if options.quick else 1 if torch.cuda.is_available() else 4
    rows: list[Row] = []
    with torch.inference_mode():
        for name, (tokens, channels) in PRODUCTS.items():
            rows += products(name, tokens, channels, 3 * rounds)
        for name, (layout, width, side) in UNETS.items():
            rows += unet_step(name, layout, *((32, 8) if options.quick else (width, side)), rounds)
        for name in TRANSFORMERS:
            rows += transformer_step(name, part, rounds)
    report(rows, SEPARATE, options.json, NOTES)


if __name__ == "__main__":
    main()
