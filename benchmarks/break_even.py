"""From how many tokens on reducing them pays: one self-attention with its projections, full and reduced.

    python benchmarks/break_even.py [--quick] [--json PATH] [--threads N]

What ``auto`` calls worth it (optimizers/token_merging/automatic.py) is read off this table, device by device: the last
line says from how many tokens on thinning out was faster at every ratio and width. Runs on the GPU where there is one.
"""

from __future__ import annotations

import math
import sys
from functools import partial

import torch
import torch.nn.functional as F
from common import Variant, arguments, measure
from record import ROOT, Row, report
from roof import peak_speed, speed_note
from torch import Tensor

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.pack import load_pack  # noqa: E402

load_pack()
from paceline.optimizers.token_merging import METHODS, BlockCall, TokenMergingSettings  # noqa: E402

FULL = "no reduction"
SIZES = [(8, 1280), (16, 1280), (16, 640), (32, 640), (32, 1280), (64, 320), (64, 640)]  # side in tokens, channels
SIZES_ON_GPU = [*SIZES, (48, 640), (96, 320), (64, 1280), (128, 640)]
HEADS, BATCH = 8, 2
ENOUGH = 1.02
"""A speedup below is noise, and no reason to change the picture."""


def attend(x: Tensor, weights: list[Tensor], side: int, settings: TokenMergingSettings | None) -> Tensor:
    """Self-attention of ``[batch, side * side, channels]``, with Apply ToMe's reduction around it."""
    query = context = x
    reduction = None
    if settings is not None:
        reduction = METHODS[settings.method].plan(x, BlockCall(side, side, settings.ratio, settings))
        context = reduction.reduce(x)
        query = context if reduction.shrinks_queries else x
    parts = (F.linear(t, w) for t, w in zip((query, context, context), weights[:3], strict=True))
    q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in parts)  # BNC -> BHND
    output = F.linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2), weights[3])
    return reduction.restore(output) if reduction is not None and reduction.shrinks_queries else output


def threshold(gains: dict[int, float]) -> int | None:
    """Return the smallest of the token counts from which on all have gained enough, or None."""
    found = None
    for tokens in sorted(gains, reverse=True):
        if gains[tokens] < ENOUGH:
            break
        found = tokens
    return found


def main() -> None:
    """Measure every size."""
    options = arguments(__doc__.splitlines()[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.float16 if device == "cuda" else torch.float32
    speed = peak_speed(dtype, torch.device(device), *((512, 0.0) if options.quick else ()))
    rows: list[Row] = []
    gains: dict[int, float] = {}  # the smallest one of thinning out, by tokens
    sizes = SIZES_ON_GPU if device == "cuda" else SIZES
    with torch.inference_mode():
        for side, channels in sizes[:4] if options.quick else sizes:
            generator = torch.Generator().manual_seed(side)
            x = torch.randn(BATCH, side * side, channels, generator=generator).to(device, dtype)
            weights = [torch.randn(channels, channels, generator=generator) / channels**0.5 for _ in range(4)]
            weights = [weight.to(device, dtype) for weight in weights]
            variants: dict[str, Variant] = {FULL: partial(attend, x, weights, side, None)}
            for method, ratio in (("kv_downsample", 0.5), ("kv_downsample", 0.75), ("merge", 0.5)):
                chosen = TokenMergingSettings(method=method, ratio=ratio)
                variants[f"{method} {ratio}"] = partial(attend, x, weights, side, chosen)
            work = f"self-attention of {side * side} tokens, {channels} channels, {HEADS} heads, batch {BATCH}, {dtype}"
            found = measure(work, variants, FULL, rounds=5 if options.quick else 15, speed=speed)
            rows += found
            thinned = [row.speedup for row in found if row.name.startswith("kv_downsample")]
            gains[side * side] = min(gains.get(side * side, math.inf), *thinned)
    report(rows, FULL, options.json, speed_note({dtype: speed}))
    print(f"\nOn {device}, thinning out is faster from {threshold(gains)} tokens on.")


if __name__ == "__main__":
    main()
