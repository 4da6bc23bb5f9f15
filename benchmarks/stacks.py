"""Whole pictures: ComfyUI as it comes, its own nodes, and ours one on top of the other; and decoding alone.

    python benchmarks/stacks.py [--quick] [--json PATH] [--layout sdxl|sd15|flux|z_image|vae_wan|...] [--latent 128]
                                [--batch 1] [--steps 30] [--cfg 7] [--diffusers] [--variants NAME ...] [--rounds 5]
                                [--seconds 480]

Weights are random: speed does not depend on them, pictures do, and so does how many steps can be left out:
*evaluations* of the network are counted where some are. ``--diffusers`` goes through the published recipe for fast SDXL
(github.com/huggingface/diffusion-fast) in diffusers' own pipeline. ``roof`` is the time that the network's
multiplications would take at the speed of this device's largest matrix product, measured here, in the dtype of the row.

Each variant takes turns with the first one, and none is begun after ``--seconds``. The file is written after each, so a
run that is stopped keeps its results. Under on_gpu.sh what an earlier call has measured is left out; the exit status is
75 while something is left to be measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from shared.decoding import DECODERS, Decoding
from shared.measuring import arguments, measure, relative_error, wait
from shared.record import Row, keep, kept, report, write
from shared.roof import operations, peak_speed, speed_note
from shared.stack_variants import LARGE, LARGE_NAMES, Models, Variant, recipe, said_by

# isort: split
from comfy_host import vaes
from comfy_host.in_process import bootstrap, sample, use_dynamic_vram
from paceline.core.errors import error_line

MORE = 75
"""Exit status where there was too little time for all variants (``EX_TEMPFAIL``)."""
SHORTEST = 15.0
"""Seconds that a variant is measured for, also where its first picture took all of its share of the time."""
Draw = Callable[[], torch.Tensor]


class Images:
    """Pictures by ComfyUI: what they are (``work``), and the ways in which they are drawn (``variants``)."""

    def __init__(self, options: argparse.Namespace) -> None:
        on_gpu = torch.cuda.is_available()
        layout = {"sdxl": "SDXL", "sd15": "SD1.5"}.get(options.layout, options.layout)
        width = 32 if layout == "tiny" else 64 if options.quick else 320
        bootstrap(cpu=not on_gpu)
        dynamic = options.dynamic_vram and use_dynamic_vram()
        self.memory = "dynamic VRAM, as ComfyUI's server has it by default" if dynamic else "without dynamic VRAM"
        large = layout in LARGE
        self.variants = recipe(options.compiler, unet=not large)
        self._options, self._models = options, Models(layout, width, on_gpu)
        self._dtype = torch.float32 if not on_gpu else torch.bfloat16 if large else torch.float16
        self._models.of(self._dtype)
        self._texts = self._models.conditioning(1), self._models.conditioning(2)
        self._scheduler = "simple" if large else "normal"
        channels = 16 if large else 4
        small = options.quick or layout == "tiny"
        make = partial(vaes.kl, channels=channels) if small else partial(vaes.sd15, 0, channels, None)
        self._vae = vaes.reloadable(make)
        what = f"{layout}, {width} channels"
        if large:
            what = LARGE_NAMES[layout] + (", made tiny" if options.quick else "")
        pixels = f"{options.latent * 8} x {options.latent * 8}"
        self.work = f"{options.steps} steps, cfg {options.cfg:g}: {what}, {pixels}, batch {options.batch}, random "
        self.work += "weights, decoded"
        self.evaluations = 0
        self.sampling: dict[str, float] = {}  # seconds of a variant's latest picture

    def dtype(self, variant: Variant) -> torch.dtype:
        """Return in what a variant computes."""
        return self._dtype

    @contextmanager
    def ready(self, variant: Variant) -> Iterator[Draw]:
        """Give what draws with a variant."""
        with torch.inference_mode():
            model = variant.of(self._models.of(self._dtype))
            if variant.counted:
                from comfy.patcher_extension import WrappersMP

                model = model.clone()
                model.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "counting", self._count)
            vae = variant.of_vae(self._vae)
            yield partial(self._draw, variant.name, model, vae)
            self.said = said_by(model, vae)

    def _count(self, executor: Callable[..., torch.Tensor], *args: object, **kwargs: object) -> torch.Tensor:
        self.evaluations += 1
        return executor(*args, **kwargs)

    def _draw(self, name: str, model: object, vae: Any) -> torch.Tensor:
        given, self.evaluations = self._options, 0
        latent, begun = self._models.latent(given.batch, given.latent), time.perf_counter()
        drawn: torch.Tensor = sample(
            model, *self._texts, latent, seed=1, steps=given.steps, cfg=given.cfg, scheduler=self._scheduler
        )
        wait()
        self.sampling[name] = time.perf_counter() - begun
        vae.decode(drawn)
        return drawn


def first_image(draw: Draw) -> tuple[torch.Tensor, float]:
    """Return the first image of a variant, and the seconds that it took, with compiling."""
    begun = time.perf_counter()
    drawn = draw()
    wait()
    return drawn.float(), time.perf_counter() - begun


def main() -> None:
    options = arguments(__doc__.splitlines()[0], more=_more)
    # on_gpu.sh ends this program after so long.
    end = time.perf_counter() + min(options.seconds, float(os.environ.get("STAGE_SECONDS", "inf")) - 15)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images: Any
    if options.diffusers:
        from shared.diffusers_recipe import Pipelines

        images = Pipelines(options)
    else:
        images = (Decoding if options.layout in DECODERS else Images)(options)
    base, *others = _chosen(images.variants, options)
    done = kept(images.work)
    waiting = [variant for variant in others if variant.name not in done]
    rows: dict[str, Row] = {}
    left_out: dict[str, str] = {}
    speeds: dict[torch.dtype, float] = {}

    def save() -> None:
        found = [asdict(row) for row in rows.values()]
        notes = {
            **speed_note(speeds),
            "memory": images.memory,
            "operations": f"{count / 1e12:.4g} TFLOP in one image of the first row",
            "relative_error": "L2 distance to what the first row draws; the weights are random, so it tells little "
            "about pictures",
            **{f"left out, {name}": why for name, why in left_out.items()},
        }
        if options.json is None:
            keep(found, base.name, notes)
        else:
            write(options.json, found, base.name, notes)

    with images.ready(base) as plain:
        expected, seconds = first_image(plain)
        quality = {base.name: {"first_image_seconds": seconds, "relative_error": 0.0}}
        count = operations(plain)
        while waiting:
            share = (end - time.perf_counter()) / len(waiting)
            if rows and share <= 0:  # one more than last time, whatever it takes
                break
            variant = waiting.pop(0)
            try:
                with images.ready(variant) as draw:
                    drawn, seconds = first_image(draw)
                    error = relative_error(drawn, expected)
                    quality[variant.name] = {"first_image_seconds": seconds, "relative_error": error}
                    if getattr(variant, "counted", False):
                        quality[variant.name]["evaluations"] = images.evaluations
                    print(f"{variant.name}: first image after {seconds:.1f} s", file=sys.stderr, flush=True)
                    found = measure(
                        images.work,
                        {base.name: plain, variant.name: draw},
                        base.name,
                        rounds=options.rounds,
                        quality=quality,
                        long=True,
                        follow_tensors=False,
                        seconds=max(share - seconds, SHORTEST),
                    )
                for row in found:
                    if row.name in getattr(images, "sampling", {}):
                        row.quality["sampling_seconds"] = images.sampling[row.name]
                print(getattr(images, "said", ""), file=sys.stderr, flush=True)
            except Exception as failed:  # one that cannot run here must not cost the others
                left_out[variant.name] = error_line(failed, named=True)
                print(f"{variant.name}: {left_out[variant.name]}", file=sys.stderr, flush=True)
            else:
                for row, dtype in zip(found, map(images.dtype, (base, variant)), strict=True):
                    speeds[dtype] = speeds.get(dtype) or peak_speed(dtype, device, options.quick)
                    row.roof_share = count / speeds[dtype] / row.seconds_median
                    rows[row.name] = row
            save()
    report(list(rows.values()), base.name, None)
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    if waiting and "STAGE_SECONDS" in os.environ:
        sys.exit(MORE)


def _chosen(known: list[Variant], options: argparse.Namespace) -> list[Variant]:
    """Return the variants that were asked for; the first one, which the others are compared with, is always there."""
    names = [variant.name for variant in known]
    unknown = [name for name in options.variants or () if name not in names]
    if unknown:
        sys.exit(f"There is no variant {unknown[0]!r}. There are: {'; '.join(names)}.")
    return [v for v in known if not options.variants or v is known[0] or v.name in options.variants]


def _more(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--layout", choices=("sdxl", "sd15", "tiny", *LARGE, *DECODERS), default="sdxl")
    add("--latent", type=int, default=128, metavar="SIDE", help="side of the latent: 1/8 of the picture's")
    add("--batch", type=int, default=1, metavar="N")
    add("--steps", type=int, default=30, metavar="N")
    add("--cfg", type=float, default=7.0, metavar="SCALE", help="guidance; without a second pass if 1")
    add("--diffusers", action="store_true", help="the recipe in diffusers' own pipeline")
    add("--variants", nargs="+", metavar="NAME", help="only these, and the first")
    add("--rounds", type=int, default=5, metavar="N")
    add("--seconds", type=float, default=480.0, help="begin nothing new after this long")
    add("--dynamic-vram", action="store_true", help="let ComfyUI manage the GPU's memory as its server does")
    add("--compiler", default="inductor", help="backend of torch.compile; eager compiles nothing, for rehearsals")


if __name__ == "__main__":
    main()
