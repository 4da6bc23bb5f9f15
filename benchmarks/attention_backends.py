"""Every attention backend that runs here on the calls that models make at the sizes of ComfyUI's templates.

    python benchmarks/attention_backends.py [--quick] [--json PATH] [--threads N]

``relative_error`` is against the formula in fp32. ``roof`` is the time of the two matrix products at the speed of the
device's largest matrix product in the same dtype, measured here.
"""

from __future__ import annotations

import sys
from functools import partial

import torch
from shared.measuring import Variant, arguments, measure, relative_error
from shared.record import Row, report
from shared.roof import peak_speed, place, speed_note

# isort: split
from paceline.optimizers.attention.backend import AttentionCall, Inputs
from paceline.optimizers.attention.registry import BACKENDS, probe_backend

# name: batch, heads, tokens, tokens of keys, channels of a head
CALLS = {
    "SD1.5 512 x 512, self-attention": (2, 8, 4096, 4096, 40),
    "SD1.5 1024 x 1024, self-attention": (2, 8, 16384, 16384, 40),
    "SDXL 1024 x 1024, self-attention": (2, 10, 4096, 4096, 64),
    "SDXL 1024 x 1024, self-attention, inner": (2, 20, 1024, 1024, 64),
    "SDXL 1024 x 1024, text": (2, 10, 4096, 77, 64),
    "Flux 1024 x 1024, joint": (1, 24, 4608, 4608, 128),
    "Z-Image 1024 x 1024, joint": (1, 30, 4608, 4608, 128),
    "Wan 14B 640 x 640, 81 frames, self-attention": (1, 40, 33600, 33600, 128),
}
QUICK = {"SD1.5 64 x 64, self-attention": (1, 2, 64, 64, 40), "SDXL 64 x 64, text": (1, 2, 64, 77, 64)}
MOST_PLAIN = 2**32
"""Bytes of scores; backends that hold all of them at once are left out above."""


def rows_of(name: str, sizes: tuple[int, int, int, int, int], speed: float, rounds: int) -> list[Row]:
    """Measure one call with every backend that takes it."""
    device, dtype = place()
    batch, heads, queries, keys, channels = sizes
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(batch, heads, tokens, channels, generator=generator).to(device, dtype)
        for tokens in (queries, keys, keys)
    )
    call = AttentionCall.of(q, k, v)
    variants: dict[str, Variant] = {}
    for backend in BACKENDS.values():
        plain = backend.name in ("vanilla", "sdpa_math")
        if plain and 4 * batch * heads * queries * keys > MOST_PLAIN:
            continue
        found = probe_backend(backend, device, dtype, channels)
        if found.function is None:
            print(f"{backend.name}: {found.reason}", file=sys.stderr)
            continue
        try:
            if backend.refusal(call) is None:
                found.function(Inputs(q, k, v))
                variants[backend.name] = partial(found.function, Inputs(q, k, v))
        except RuntimeError as error:
            print(f"{backend.name}: {str(error).splitlines()[0]}", file=sys.stderr)
    expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    quality = {name: {"relative_error": relative_error(run(), expected)} for name, run in variants.items()}
    work = f"{name}: {batch} x {heads} heads x {queries} x {keys}, {channels} channels, {str(dtype)[6:]}"
    return measure(work, variants, "sdpa", rounds=rounds, quality=quality, speed=speed)


def main() -> None:
    options = arguments(__doc__.splitlines()[0])
    device, dtype = place()
    speed = peak_speed(dtype, device, options.quick)
    rows: list[Row] = []
    with torch.inference_mode():
        for name, sizes in (QUICK if options.quick else CALLS).items():
            rows += rows_of(name, sizes, speed, 3 if options.quick else 7)
    report(rows, "sdpa", options.json, speed_note({dtype: speed}))


if __name__ == "__main__":
    main()
