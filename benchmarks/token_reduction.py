"""Every method of Apply ToMe against no reduction and against ComfyUI's own node: one sampling step of SD1.5 and SDXL.

    python benchmarks/token_reduction.py [--quick] [--json PATH] [--threads N] [--only sd15|sdxl]
                                         [--latents 64 128] [--steps 2] [--variants merge balanced]

The baseline runs ComfyUI's PyTorch attention (fused on CPUs and GPUs alike).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from common import ROOT, Row, Variant, arguments, measure, relative_error, report
from unets import unet

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.in_process import random_conditioning, sample  # noqa: E402
from comfy_host.pack import load_nodes  # noqa: E402

NONE, CORE = "no reduction", "ComfyUI TomePatchModel 0.5"
VARIANTS: dict[str, dict[str, Any]] = {
    "merge 0.5 (tomesd's algorithm)": {"method": "merge", "ratio": 0.5},
    "merge 0.5, shared for 5 steps": {"method": "merge", "ratio": 0.5, "refresh_every": 5},
    "local_merge 0.5": {"method": "local_merge", "ratio": 0.5},
    "local_merge 0.5, shared": {"method": "local_merge", "ratio": 0.5, "refresh_every": 5},
    "kv_downsample 0.5": {"method": "kv_downsample", "ratio": 0.5},
    "kv_downsample 0.75": {"method": "kv_downsample", "ratio": 0.75},
    "kv_downsample 0.9375": {"method": "kv_downsample", "ratio": 0.9375},
    "preset quality": {"preset": "quality"},
    "preset balanced": {"preset": "balanced"},
    "preset fast": {"preset": "fast"},
}
QUICK = ("merge 0.5 (tomesd's algorithm)", "kv_downsample 0.75", "preset balanced")


def apply(node: Any, model: Any, settings: dict[str, Any]) -> Any:
    """Return ``model`` with Apply ToMe."""
    defaults = {"preset": "custom", "method": "auto", "ratio": 0.5, "max_downsample": "auto"}
    return node.execute(model=model, **(defaults | settings)).args[0]


def measure_layout(
    layout: str, width: int, latents: list[int], batch: int, steps: int, rounds: int, names: tuple[str, ...]
) -> Iterator[list[Row]]:
    """Measure sampling steps of one layout at several sizes."""
    on_gpu = torch.cuda.is_available()
    model = unet(layout, width, torch.float16 if on_gpu else torch.float32, cpu=not on_gpu)
    from comfy_extras.nodes_tomesd import TomePatchModel

    node = load_nodes()["PacelineApplyToMe"]
    models = {NONE: model, CORE: TomePatchModel.execute(model, 0.5).args[0]}
    models |= {name: apply(node, model, VARIANTS[name]) for name in names}
    conditioning = random_conditioning(model)
    for side in latents:
        run = partial(
            sample,
            positive=conditioning,
            negative=conditioning,
            latent=torch.zeros(batch, 4, side, side),
            steps=steps,
            cfg=1.0,
        )
        variants: dict[str, Variant] = {name: partial(run, chosen) for name, chosen in models.items()}
        images = {name: function() for name, function in variants.items()}
        quality = {name: {"relative_error": relative_error(image, images[NONE])} for name, image in images.items()}
        where = f"{layout}, {width} channels, latent {side}x{side}, batch {batch}, random weights"
        work = f"{steps} sampling steps: {where}"
        yield measure(work, variants, NONE, rounds=rounds, warmups=0, quality=quality)


def main() -> None:
    """Run both layouts, or the one that was asked for."""
    options = arguments(__doc__.splitlines()[0], only=("sd15", "sdxl"), latents=True)
    on_gpu = torch.cuda.is_available()
    names = QUICK if options.quick else tuple(VARIANTS)
    if options.variants:
        names = tuple(name for name in VARIANTS if any(part in name for part in options.variants))
    width = 64 if options.quick else 320
    latents = options.latents or ([32, 64] if options.quick else [64, 96, 128, 256] if on_gpu else [64, 128])
    batch = 2 if on_gpu else 1
    rows: list[Row] = []
    with torch.inference_mode():
        for key, layout in (("sd15", "SD1.5"), ("sdxl", "SDXL")):
            if options.only in (None, key):
                rounds = 7 if on_gpu else 3
                for found in measure_layout(layout, width, latents, batch, options.steps, rounds, names):
                    rows += found
                    print(f"measured {found[0].work}", file=sys.stderr, flush=True)
    notes = {
        "quality": "relative L2 distance of the sampled latents; the weights are random, so it says little about "
        "pictures: see token_reduction_quality",
        "attention": "the baseline runs ComfyUI's PyTorch attention",
    }
    report(rows, NONE, options.json, notes)


if __name__ == "__main__":
    main()
