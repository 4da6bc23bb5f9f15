"""Every method of Apply ToMe against no reduction and against ComfyUI's own node: one sampling step of SD1.5 and SDXL.

    python benchmarks/token_reduction.py [--quick] [--json PATH] [--threads N] [--only sd15|sdxl] [--latents 64 128]
                                         [--steps 2] [--rounds 3] [--variants "merge 0.5" balanced] [--long]

The baseline runs ComfyUI's PyTorch attention (fused on CPUs and GPUs alike). ``--variants`` always keeps the baseline.
``--long`` is for steps of minutes: memory is measured while the time is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from shared.measuring import Variant, arguments, measure, relative_error
from shared.record import ROOT, Row, report
from shared.roof import peak_speed, speed_note
from shared.unets import unet

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.in_process import random_conditioning, sample  # noqa: E402
from comfy_host.pack import load_nodes  # noqa: E402

NONE, CORE = "no reduction", "ComfyUI TomePatchModel 0.5"
RATIOS = {"merge": (0.25, 0.5, 0.75), "kv_downsample": (0.5, 0.75, 0.9375)}
OURS: dict[str, dict[str, Any]] = {
    **{f"{method} {ratio:g}": {"method": method, "ratio": ratio} for method in RATIOS for ratio in RATIOS[method]},
    "preset quality": {"preset": "quality"},
    "preset balanced": {"preset": "balanced"},
    "preset fast": {"preset": "fast"},
}
VARIANTS = (NONE, CORE, *OURS)
QUICK = (NONE, CORE, "merge 0.5", "kv_downsample 0.75", "preset balanced")
NOTES = {
    "relative_error": "L2 distance of the sampled latents to those of the baseline; the weights are random, so it says "
    "little about pictures: see peers",
    "attention": "the baseline runs ComfyUI's PyTorch attention",
}


def chosen(parts: list[str] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the baseline and the names that are in ``parts`` or contain one of them."""
    if not parts:
        return names
    wanted = {name for part in parts for name in names if name == part or (part not in names and part in name)}
    return (NONE, *(name for name in names if name in wanted - {NONE}))


def apply(model: Any, name: str) -> Any:
    """Return ``model`` with the node that a variant stands for."""
    from comfy_extras.nodes_tomesd import TomePatchModel

    if name == NONE:
        return model
    if name == CORE:
        return TomePatchModel.execute(model, 0.5).args[0]
    defaults = {"preset": "custom", "method": "auto", "ratio": 0.5, "max_downsample": "auto"}
    return load_nodes()["PacelineApplyToMe"].execute(model=model, **(defaults | OURS[name])).args[0]


def measure_layout(
    layout: str,
    width: int,
    latents: list[int],
    batch: int,
    steps: int,
    rounds: int,
    long: bool,
    names: tuple[str, ...],
    speed: float,
) -> Iterator[list[Row]]:
    """Measure sampling steps of one layout at several sizes."""
    on_gpu = torch.cuda.is_available()
    model = unet(layout, width, torch.float16 if on_gpu else torch.float32, cpu=not on_gpu)
    models = {name: apply(model, name) for name in names}
    conditioning = random_conditioning(model)

    def run(name: str, side: int) -> torch.Tensor:
        latent = torch.zeros(batch, 4, side, side)
        latents: torch.Tensor = sample(models[name], conditioning, conditioning, latent, steps=steps, cfg=1.0)
        return latents

    for side in latents:
        images: dict[str, torch.Tensor] = {}

        def variant(name: str, side: int, images: dict[str, torch.Tensor]) -> None:
            images[name] = run(name, side)

        for name in names:  # small and quick, only so that nobody is first, and weights are where they are used
            run(name, 32)
        variants: dict[str, Variant] = {name: partial(variant, name, side, images) for name in names}
        where = f"{layout}, {width} channels, latent {side}x{side}, batch {batch}, random weights"
        work = f"{steps} sampling step{'s' if steps > 1 else ''}: {where}"
        rows = measure(work, variants, NONE, rounds=rounds, warmups=0, speed=speed, memory_while_timed=long)
        for row in rows:
            row.quality = {"relative_error": relative_error(images[row.name], images[NONE])}
        yield rows


def main() -> None:
    """Run both layouts, or the one that was asked for."""
    options = arguments(__doc__.splitlines()[0], only=("sd15", "sdxl"), latents=True)
    on_gpu = torch.cuda.is_available()
    names = chosen(options.variants, VARIANTS if options.variants or not options.quick else QUICK)
    width = 64 if options.quick else 320
    latents = options.latents or ([32, 64] if options.quick else [64, 96, 128, 256] if on_gpu else [64, 128])
    batch = 2 if on_gpu else 1
    rounds = options.rounds or (7 if on_gpu else 3)
    device, dtype = torch.device("cuda" if on_gpu else "cpu"), torch.float16 if on_gpu else torch.float32
    speed = peak_speed(dtype, device, *((512, 0.0) if options.quick else ()))
    shared = (batch, options.steps, rounds, options.long, names, speed)
    rows: list[Row] = []
    with torch.inference_mode():
        for key, layout in (("sd15", "SD1.5"), ("sdxl", "SDXL")):
            if options.only in (None, key):
                for found in measure_layout(layout, width, latents, *shared):
                    rows += found
                    print(f"measured {found[0].work}", file=sys.stderr, flush=True)
    report(rows, NONE, options.json, NOTES | speed_note({dtype: speed}))


if __name__ == "__main__":
    main()
