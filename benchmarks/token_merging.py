"""Token merging against tomesd and ComfyUI's own node: its operators, one self-attention, and one sampling step.

    python benchmarks/token_merging.py [--quick] [--json PATH] [--threads N] [--only operators|attention|model]

tomesd (pip install --no-deps tomesd==0.1.3) is needed for the first two, a ComfyUI for the last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from common import Variant, arguments, measure, relative_error
from record import ROOT, Row, report
from roof import peak_speed, speed_note
from torch import Tensor
from unets import unet

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.in_process import random_conditioning, sample  # noqa: E402
from comfy_host.pack import load_nodes, load_pack  # noqa: E402

load_pack()
from paceline.optimizers.token_merging.grid import partition_tokens, random_offsets  # noqa: E402
from paceline.optimizers.token_merging.matching import Matching, match, merge, unmerge  # noqa: E402
from tomesd.merge import bipartite_soft_matching_random2d  # noqa: E402

Layer = Callable[[Tensor, Tensor], Tensor]
OURS, TOMESD, CORE, FULL = "Paceline", "tomesd 0.1.3", "ComfyUI TomePatchModel", "no merging"
RATIO = 0.5
BATCH = 2  # a prompt and its negative
SETTINGS: dict[str, Any] = {"preset": "custom", "method": "merge", "ratio": RATIO}


def smooth_tokens(side: int, channels: int) -> Tensor:
    """Return ``[BATCH, side * side, channels]`` where neighbours are alike, as in a model, unlike white noise."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(BATCH * channels, 1, side, side, generator=generator)
    kernel = torch.exp(-(torch.arange(-5, 6) ** 2) / (2 * 1.5**2))
    kernel = (kernel / kernel.sum()).view(1, 1, -1, 1)
    image = F.conv2d(F.conv2d(image, kernel, padding="same"), kernel.transpose(2, 3), padding="same")
    tokens = (image / image.std()).view(BATCH, channels, side * side).transpose(1, 2)
    return tokens.contiguous()


def tomesd_match(x: Tensor, side: int, generator: torch.Generator | None = None) -> tuple[Variant, Variant]:
    """Match as tomesd does; random destinations with a generator, else top-left."""
    removed = int(x.shape[1] * RATIO)
    fixed = generator is None
    return bipartite_soft_matching_random2d(x, side, side, 2, 2, removed, no_rand=fixed, generator=generator)


def our_match(x: Tensor, side: int, step: int | Tensor | None = 0) -> Matching:
    """Match as our adapter does; random destinations with a step, else top-left."""
    offsets = None if step is None else random_offsets(side, side, seed=0, step=step, block=0)
    return match(x, partition_tokens(side, side, offsets=offsets), RATIO)


def tomesd_layer(x: Tensor, side: int, generator: torch.Generator, layer: Layer, all_three: bool) -> Tensor:
    """Run ``layer(query, context)`` on tokens that tomesd merges; the context only if ``all_three``."""
    merge_them, unmerge_them = tomesd_match(x, side, generator)
    merged = merge_them(x)
    return unmerge_them(layer(merged, merged if all_three else x))


def our_layer(x: Tensor, side: int, layer: Layer) -> Tensor:
    """Run ``layer(query, context)`` on tokens that we merge."""
    matching = our_match(x, side)
    merged = merge(x, matching)
    return unmerge(layer(merged, merged), matching)


def operators(sizes: list[tuple[int, int]], rounds: int) -> Iterator[list[Row]]:
    """Measure matching, merging and unmerging, one by one and together."""
    for side, channels in sizes:
        x = smooth_tokens(side, channels)
        generator = torch.Generator().manual_seed(0)
        their_merge, their_unmerge = tomesd_match(x, side)
        matching = our_match(x, side, None)
        theirs, ours = their_merge(x), merge(x, matching)
        image = their_unmerge(theirs)
        quality = {
            OURS: {
                "tokens_unlike_tomesd": float(((unmerge(ours, matching) - image).abs() > 1e-5).any(-1).float().mean())
            }
        }
        sources, destinations = x[:, x.shape[1] // 4 :], x[:, : x.shape[1] // 4].transpose(1, 2)

        where = f"{side}x{side} tokens, {channels} channels, batch {BATCH}, ratio {RATIO}"
        product = partial(torch.matmul, sources, destinations)
        work: dict[str, tuple[Variant, Variant, Variant]] = {
            "match": (partial(tomesd_match, x, side, generator), partial(our_match, x, side), product),
            "merge": (partial(their_merge, x), partial(merge, x, matching), ours.clone),
            "unmerge": (partial(their_unmerge, theirs), partial(unmerge, ours, matching), image.clone),
            "match, merge and unmerge": (
                partial(tomesd_layer, x, side, generator, lambda merged, _: merged, True),
                partial(our_layer, x, side, lambda merged, _: merged),
                product,
            ),
        }
        for name, (competitor, own, floor) in work.items():
            variants = {TOMESD: competitor, OURS: own, "roof": floor}
            found = quality if name.startswith("match,") else None
            yield measure(f"{name}: {where}", variants, TOMESD, rounds=rounds, quality=found, roof="roof")


def attention(sizes: list[tuple[int, int]], rounds: int, speed: float) -> Iterator[list[Row]]:
    """Measure one self-attention of SD1.5 (8 heads) with its projections, all included."""
    for side, channels in sizes:
        x = smooth_tokens(side, channels)
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(channels, channels, generator=generator) / channels**0.5 for _ in range(4)]

        def layer(query: Tensor, context: Tensor, weights: list[Tensor] = weights) -> Tensor:
            parts = (F.linear(t, w) for t, w in zip((query, context, context), weights[:3], strict=True))
            q, k, v = (p.unflatten(2, (8, -1)).transpose(1, 2) for p in parts)  # BNC -> BHND
            out = F.scaled_dot_product_attention(q, k, v)
            return F.linear(out.transpose(1, 2).flatten(2), weights[3])

        generator = torch.Generator().manual_seed(0)
        variants: dict[str, Variant] = {
            FULL: partial(layer, x, x),
            "queries only (as ComfyUI's node)": partial(tomesd_layer, x, side, generator, layer, False),
            TOMESD: partial(tomesd_layer, x, side, generator, layer, True),
            OURS: partial(our_layer, x, side, layer),
        }
        exact = layer(x, x)
        quality = {name: {"relative_error": relative_error(f(), exact)} for name, f in variants.items()}
        where = f"{side}x{side} tokens, {channels} channels, 8 heads, batch {BATCH}, ratio {RATIO}"
        yield measure(f"self-attention: {where}", variants, FULL, rounds=rounds, quality=quality, speed=speed)


def model(latents: list[int], width: int, rounds: int, speed: float) -> Iterator[list[Row]]:
    """Measure one sampling step of ComfyUI with SD1.5's UNet and random weights."""
    patcher = unet("SD1.5", width)
    from comfy_extras.nodes_tomesd import TomePatchModel

    apply_tome = load_nodes()["PacelineApplyToMe"]
    models = {
        FULL: patcher,
        CORE: TomePatchModel.execute(patcher, RATIO).args[0],
        OURS: apply_tome.execute(model=patcher, **SETTINGS, max_downsample="auto").args[0],
        f"{OURS}, all levels": apply_tome.execute(model=patcher, **SETTINGS, max_downsample="8").args[0],
    }
    conditioning = random_conditioning(patcher)
    for side in latents:
        latent = torch.zeros(1, 4, side, side)

        run = partial(sample, positive=conditioning, negative=conditioning, latent=latent, steps=1, cfg=1.0)
        variants: dict[str, Variant] = {name: partial(run, chosen) for name, chosen in models.items()}
        images = {name: function() for name, function in variants.items()}
        quality = {name: {"relative_error": relative_error(image, images[FULL])} for name, image in images.items()}
        work = (
            f"one sampling step: SD1.5, {width} channels, latent {side}x{side}, batch 1, ratio {RATIO}, random weights"
        )
        yield measure(work, variants, FULL, rounds=rounds, warmups=0, quality=quality, speed=speed)


def main() -> None:
    """Run all three parts, or the one that was asked for."""
    options = arguments(__doc__.splitlines()[0], only=("operators", "attention", "model"))
    sizes = [(64, 320), (32, 640)] if options.quick else [(64, 320), (128, 320), (32, 640), (64, 640)]
    rounds = 5 if options.quick else 9
    speed = peak_speed(torch.float32, torch.device("cpu"), *((512, 0.0) if options.quick else ()))
    parts: dict[str, Callable[[], Iterator[list[Row]]]] = {
        "operators": lambda: operators(sizes, rounds),
        "attention": lambda: attention(sizes, 3 if options.quick else 5, speed),
        "model": lambda: model([32, 64], 64, 3, speed) if options.quick else model([64, 128], 320, 2, speed),
    }
    rows: list[Row] = []
    for name, part in parts.items():
        if options.only in (None, name):
            with torch.inference_mode():
                for found in part():
                    rows += found
                    print(f"measured {found[0].work}", flush=True)
    notes = {
        "baseline": f"{TOMESD} for the operators, '{FULL}' for the others",
        **speed_note({torch.float32: speed}),
        "of the roof, operators": "match: over the bare matrix product of similarities; merge and unmerge: over a copy",
        "quality": "random fields and random weights: for comparing the variants, not for judging images",
    }
    report(rows, f"{TOMESD} / {FULL}", options.json, notes)


if __name__ == "__main__":
    main()
