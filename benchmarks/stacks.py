"""Whole images on SDXL and SD1.5: ComfyUI as it is, its own compile node, and our nodes one on top of the other.

    python benchmarks/stacks.py [--quick] [--json PATH] [--layout sdxl|sd15|tiny] [--latent 128] [--batch 1]
                                [--steps 30] [--group ours|recipe] [--variants NAME ...] [--rounds 5] [--seconds 480]

Weights are random: speed does not depend on them, pictures do. ``ours`` compares with ComfyUI's defaults, ``recipe``
goes through the steps of the published recipe for fast SDXL (github.com/huggingface/diffusion-fast), each on top of
the one before. ``roof`` is the time that the network's multiplications would take at the speed of this device's largest
matrix product, measured here, in the dtype of the row.

Each variant is timed once as soon as it has run, then all take turns until ``--seconds`` are over. The file is written
after each, so a run that is stopped keeps its results. Under on_gpu.sh what an earlier call has measured is left out;
the exit status is 75 while something is left to be measured.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from shared.measuring import arguments, relative_error, wait
from shared.record import ROOT, Row, keep, kept, table, write
from shared.roof import operations, peak_speed, speed_note
from shared.stack_variants import Models, Variant, ours, recipe, with_nodes
from shared.transformers_at_width import WIDE

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host import vaes  # noqa: E402
from comfy_host.in_process import bootstrap, sample, use_dynamic_vram  # noqa: E402

MORE = 75
"""Exit status where there was too little time for all variants (``EX_TEMPFAIL``)."""


@dataclass
class Contender:
    """A variant that is ready to run, and what was measured of it."""

    name: str
    run: Callable[[], torch.Tensor]
    dtype: torch.dtype
    first_image: float
    image: torch.Tensor
    seconds: list[float] = field(default_factory=list)
    peak: int = 0


def _timed(contender: Contender) -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    wait()
    started = time.perf_counter()
    contender.run()
    wait()
    contender.seconds.append(time.perf_counter() - started)
    if torch.cuda.is_available():
        contender.peak = max(contender.peak, torch.cuda.max_memory_allocated())


def rows(work: str, contenders: list[Contender], flops: int, speeds: dict[torch.dtype, float]) -> list[Row]:
    """Return what has been measured so far."""
    found = []
    base = contenders[0]
    for one in contenders:
        rounds = min(len(one.seconds), len(base.seconds))
        if not rounds:
            continue
        median = statistics.median(one.seconds)
        pairs = zip(base.seconds[:rounds], one.seconds[:rounds], strict=True)
        found.append(
            Row(
                name=one.name,
                work=work,
                seconds_median=median,
                seconds_min=min(one.seconds),
                seconds_max=max(one.seconds),
                speedup=statistics.median(before / after for before, after in pairs),
                peak_memory_bytes=one.peak or None,  # only a GPU's allocator counts without slowing down
                quality={
                    "first_image_seconds": one.first_image,
                    "relative_error": relative_error(one.image, base.image),
                },
                roof_share=flops / speeds[one.dtype] / median,
                rounds=rounds,
            )
        )
    return found


def main() -> None:
    options = arguments(__doc__.splitlines()[0], more=_more)
    # on_gpu.sh ends this program after so long.
    options.seconds = min(options.seconds, float(os.environ.get("STAGE_SECONDS", "inf")) - 40)
    on_gpu = torch.cuda.is_available()
    started = time.perf_counter()
    layout = {"sdxl": "SDXL", "sd15": "SD1.5"}.get(options.layout, options.layout)
    width = 32 if layout == "tiny" else 64 if options.quick else 320
    default = torch.float32 if not on_gpu else torch.bfloat16 if layout in WIDE else torch.float16
    bootstrap(cpu=not on_gpu)
    dynamic = options.dynamic_vram and use_dynamic_vram()
    models = Models(layout, width, on_gpu)
    device = torch.device("cuda" if on_gpu else "cpu")
    side, batch, steps = options.latent, options.batch, options.steps
    what = f"{WIDE[layout].name}, {'narrow' if options.quick else 'full width'}" if layout in WIDE else None
    what = what or f"{layout}, {width} channels"
    cfg = 1.0 if layout.startswith("flux") else 7.0  # Flux dev is guided without a second pass
    work = f"{steps} steps, cfg {cfg:g}: {what}, {side * 8} x {side * 8}, batch {batch}, random weights"
    work += ", decoded" if options.vae else ""
    contenders: list[Contender] = []
    left_out: dict[str, str] = {}
    speeds: dict[torch.dtype, float] = {}
    flops, left = 0, False
    models.of(default)
    positive, negative = models.conditioning(1), models.conditioning(2)

    vae = None
    if options.vae:
        vae = vaes.kl() if layout == "tiny" else vaes.sd15(dtype=None)

    def image(model: Any) -> torch.Tensor:
        latent = models.latent(batch, side)
        drawn: torch.Tensor = sample(model, positive, negative, latent, seed=1, steps=steps, cfg=cfg)
        if vae is not None:
            vae.decode(drawn)
        return drawn

    def save() -> None:
        found = [asdict(row) for row in rows(work, contenders, flops, speeds)]
        notes = {
            **speed_note(speeds),
            "memory": "dynamic VRAM, as ComfyUI's server has it by default" if dynamic else "without dynamic VRAM",
            "operations": f"{flops / 1e12:.4g} TFLOP in one image of the first row",
            "relative_error": "L2 distance of the latents to the first row's; the weights are random, so it tells "
            "little about pictures",
            **{f"left out, {name}": why for name, why in left_out.items()},
        }
        if options.json is None:
            keep(found, contenders[0].name, notes)
        else:
            write(options.json, found, contenders[0].name, notes)

    with torch.inference_mode():
        for variant in _not_kept(_chosen(options), work):
            spent = time.perf_counter() - started
            if len(contenders) > 1 and spent > 0.7 * options.seconds:  # one more than last time, whatever it takes
                left = True
                left_out[variant.name] = f"no time left after {spent:.0f} s"
                continue
            dtype = variant.dtype or default
            try:
                run = partial(image, with_nodes(models.of(dtype), variant, options.compiler))
                begun = time.perf_counter()
                drawn = run()
                wait()
            except Exception as error:  # one that cannot run here must not cost the others
                if not contenders:
                    raise
                left_out[variant.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                print(f"{variant.name}: {left_out[variant.name]}", file=sys.stderr, flush=True)
                continue
            contenders.append(Contender(variant.name, run, dtype, time.perf_counter() - begun, drawn.float()))
            print(f"{variant.name}: first image after {contenders[-1].first_image:.1f} s", file=sys.stderr, flush=True)
            if dtype not in speeds:
                speeds[dtype] = peak_speed(dtype, device, options.quick)
            if not flops:
                flops = operations(run)
            # At once, so that a stage that ends in the middle of compiling the next one has this one's time.
            _timed(contenders[-1])
            save()
        for number in range(options.rounds):
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                _timed(contender)
            save()
            if time.perf_counter() - started > options.seconds:
                break
    print(table(rows(work, contenders, flops, speeds)))
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    if left and "STAGE_SECONDS" in os.environ:
        sys.exit(MORE)


def _not_kept(chosen: list[Variant], work: str) -> list[Variant]:
    """Return the first, which the others are compared with, and those that no earlier call has measured."""
    done = kept(work)
    return chosen[:1] + [variant for variant in chosen[1:] if variant.name not in done]


def _chosen(options: argparse.Namespace) -> list[Variant]:
    """Return the variants that were asked for; the first one, which the others are compared with, is always there."""
    known = (ours if options.group == "ours" else recipe)(options.compiler)
    names = [variant.name for variant in known]
    unknown = [name for name in options.variants or () if name not in names]
    if unknown:
        sys.exit(f"There is no variant {unknown[0]!r} in the group {options.group}. There are: {'; '.join(names)}.")
    return [v for v in known if not options.variants or v is known[0] or v.name in options.variants]


def _more(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--layout", choices=("sdxl", "sd15", "tiny", *WIDE), default="sdxl")
    add("--latent", type=int, default=128, metavar="SIDE", help="side of the latent: 1/8 of the picture's")
    add("--batch", type=int, default=1, metavar="N")
    add("--steps", type=int, default=30, metavar="N")
    add("--group", choices=("ours", "recipe"), default="ours")
    add("--variants", nargs="+", metavar="NAME", help="only these of the group, and its first")
    add("--rounds", type=int, default=5, metavar="N")
    add("--seconds", type=float, default=480.0, help="begin nothing new after this long")
    add("--vae", action="store_true", help="decode the images too")
    add("--dynamic-vram", action="store_true", help="let ComfyUI manage the GPU's memory as its server does")
    add("--compiler", default="inductor", help="backend of torch.compile; eager compiles nothing, for rehearsals")


if __name__ == "__main__":
    main()
