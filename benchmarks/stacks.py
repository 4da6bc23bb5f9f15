"""Whole pictures: ComfyUI as it comes, its own nodes, and ours one on top of the other; and decoding alone.

    python benchmarks/stacks.py [--quick] [--json PATH] [--layout sdxl|sd15|flux|z_image|vae_wan|...] [--latent 128]
                                [--batch 1] [--steps 30] [--cfg 7] [--diffusers] [--variants NAME ...] [--rounds 5]
                                [--seconds 480] [--alone]

Weights are random: speed does not depend on them, pictures do, and so does how many steps can be left out:
*evaluations* of the network are counted where some are. ``--diffusers`` goes through the published recipe for fast SDXL
(github.com/huggingface/diffusion-fast) in diffusers' own pipeline. ``roof`` is the time that the network's
multiplications would take at the speed of this device's largest matrix product, measured here, in the dtype of the row.

``--alone``: is a technique slower than nothing? Instead of the recipe each that trades nothing, or the picture, for
time is drawn alone; after its first picture it knows what it costs here, and should stay out where it gains nothing.

All variants take turns (in diffusers and in decoding each with the first one), and none is begun after ``--seconds``.
The file is written after each, so a run that is stopped keeps its results. Under on_gpu.sh what an earlier call has
measured is left out; the exit status is 75 while something is left to be measured. ``--compile-only`` draws the first
picture of each variant and measures nothing: the next run has what it compiled from torch's cache on disk.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from shared.decoding import DECODERS, Decoding
from shared.measuring import arguments, measure, relative_error, wait
from shared.record import Row, keep, kept, report, write
from shared.roof import operations, peak_speed, speed_note
from shared.stack_variants import LARGE, Models, Variant, alone, named, recipe, said_by

# isort: split
from comfy_host import vaes
from comfy_host.in_process import bootstrap, sample, use_dynamic_vram
from paceline.optimizers.core.errors import error_line

MORE = 75
"""Exit status where there was too little time for all variants (``EX_TEMPFAIL``)."""
SHORTEST = 15.0
"""Seconds that a variant is measured for, also where its first picture took all of its share of the time."""
CACHED = "code that an earlier process had compiled came from torch's cache on disk"
Draw = Callable[[], torch.Tensor]


class Images:
    """Pictures by ComfyUI: what they are (``work``), and the ways in which they are drawn (``variants``)."""

    together = True

    def __init__(self, options: argparse.Namespace) -> None:
        on_gpu = torch.cuda.is_available()
        layout = {"sdxl": "SDXL", "sd15": "SD1.5"}.get(options.layout, options.layout)
        width = 32 if layout == "tiny" else 64 if options.quick else 320
        bootstrap(cpu=not on_gpu)
        dynamic = options.dynamic_vram and use_dynamic_vram()
        self.memory = "dynamic VRAM, as ComfyUI's server has it by default" if dynamic else "without dynamic VRAM"
        large = layout in LARGE
        self.variants = alone(unet=not large) if options.alone else recipe(options.compiler, unet=not large)
        self._options, self._models = options, Models(layout, width, on_gpu)
        self._dtype = torch.float32 if not on_gpu else torch.bfloat16 if large else torch.float16
        self._models.of(self._dtype)
        self._texts = self._models.conditioning(1), self._models.conditioning(2)
        self._scheduler = "simple" if large else "normal"
        channels = 16 if large else 4
        small = options.quick or layout == "tiny"
        make = partial(vaes.kl, channels=channels) if small else partial(vaes.sd15, 0, channels, None)
        self._vae = vaes.reloadable(make)
        what = f"{named(layout, width)}, {options.latent * 8} x {options.latent * 8}, batch {options.batch}"
        self.work = f"{options.steps} steps, cfg {options.cfg:g}: {what}, random weights, decoded"
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
            print(f"{variant.name}: {said_by(model, vae)}", file=sys.stderr, flush=True)

    def _count(self, executor: Callable[..., torch.Tensor], *args: object, **kwargs: object) -> torch.Tensor:
        self.evaluations += 1
        return executor(*args, **kwargs)

    def _draw(self, name: str, model: object, vae: Any) -> torch.Tensor:
        given, self.evaluations = self._options, 0
        latent, begun = self._models.latent(given.batch, given.latent), time.perf_counter()
        how = {"seed": 1, "steps": given.steps, "cfg": given.cfg, "scheduler": self._scheduler}
        drawn: torch.Tensor = sample(model, *self._texts, latent, **how)
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
    compiled_before = any(Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "-")).glob("*"))
    kind: Any = Decoding if options.layout in DECODERS else Images
    if options.diffusers:
        from shared.diffusers_recipe import Pipelines as kind  # noqa: N813
    images = kind(options)
    base, *others = _chosen(images.variants, options)
    if options.compile_only:
        for variant in others:
            with images.ready(variant) as draw:
                print(f"{variant.name}: first image after {first_image(draw)[1]:.1f} s", flush=True)
        return
    done = kept(images.work)
    waiting = [variant for variant in others if variant.name not in done]
    run = Run(images, base, options, {"first image seconds": CACHED} if compiled_before else {})
    with images.ready(base) as plain:
        run.begin(plain)
        while waiting and (not run.rows or time.perf_counter() < end):  # one more than last time, whatever it takes
            run.take_turns(waiting, end)
    report(list(run.rows.values()), base.name, None)
    for name, why in run.left_out.items():
        print(f"left out: {name}: {why}")
    if waiting and "STAGE_SECONDS" in os.environ:
        sys.exit(MORE)


class Run:
    """The rows that were measured, and how."""

    def __init__(self, images: Any, base: Any, options: argparse.Namespace, notes: dict[str, str]) -> None:
        self.rows: dict[str, Row] = {}
        self.left_out: dict[str, str] = {}
        self._images, self._base, self._options, self._notes = images, base, options, notes
        self._speeds: dict[torch.dtype, float] = {}
        self._quality: dict[str, dict[str, float]] = {}
        self._dtypes = {variant.name: images.dtype(variant) for variant in images.variants}

    def begin(self, plain: Draw) -> None:
        """Draw the first picture of the first variant, and count its operations."""
        self._plain = plain
        self._expected, seconds = first_image(plain)
        self._quality[self._base.name] = {"first_image_seconds": seconds, "relative_error": 0.0}
        self._count = operations(plain)

    def take_turns(self, waiting: list[Any], end: float) -> None:
        """Measure the next variant, or where all can be ready together as many as there is time for.

        Those that were measured, or failed, leave ``waiting``.
        """
        taken = {self._base.name: self._plain}
        with ExitStack() as ready:
            while waiting and (self._images.together or len(taken) == 1):
                # The rounds need time too: two at the least.
                if len(taken) > 1 and time.perf_counter() + self._longest() + 2 * self._round() > end:
                    break
                variant = waiting.pop(0)
                try:
                    draw = ready.enter_context(self._images.ready(variant))
                    self._first(variant, draw)
                    if self._images.together:  # else its own rounds follow at once
                        self._measure({self._base.name: self._plain, variant.name: draw}, rounds=1, seconds=0.0)
                except Exception as failed:  # one that cannot run here must not cost the others
                    self.left_out[variant.name] = error_line(failed, named=True)
                    print(f"{variant.name}: {self.left_out[variant.name]}", file=sys.stderr, flush=True)
                else:
                    taken[variant.name] = draw
            if len(taken) > 1:
                left = max(end - time.perf_counter(), SHORTEST)
                share = left if self._images.together else max(left / (len(waiting) + 1), SHORTEST)
                self._measure(taken, self._options.rounds, share - self._round())

    def _longest(self) -> float:
        return max(one["first_image_seconds"] for one in self._quality.values())

    def _round(self) -> float:
        return sum(row.seconds_median or 0.0 for row in self.rows.values())

    def _first(self, variant: Any, draw: Draw) -> None:
        drawn, seconds = first_image(draw)
        error = relative_error(drawn, self._expected)
        self._quality[variant.name] = {"first_image_seconds": seconds, "relative_error": error}
        if getattr(variant, "counted", False):
            self._quality[variant.name]["evaluations"] = self._images.evaluations
        print(f"{variant.name}: first image after {seconds:.1f} s", file=sys.stderr, flush=True)

    def _measure(self, taken: dict[str, Draw], rounds: int, seconds: float) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        how = {"rounds": rounds, "quality": self._quality, "long": True, "seconds": seconds}
        for row in measure(self._images.work, taken, self._base.name, **how):
            if row.name in getattr(self._images, "sampling", {}):
                row.quality["sampling_seconds"] = self._images.sampling[row.name]
            dtype = self._dtypes[row.name]
            self._speeds[dtype] = self._speeds.get(dtype) or peak_speed(dtype, device, self._options.quick)
            row.roof_share = self._count / self._speeds[dtype] / row.seconds_median
            self.rows[row.name] = row
        self._save()

    def _save(self) -> None:
        rows = [asdict(row) for row in self.rows.values()]
        notes = {
            **speed_note(self._speeds),
            "memory": self._images.memory,
            "operations": f"{self._count / 1e12:.4g} TFLOP in one image of the first row",
            "relative_error": "L2 distance to what the first row draws; the weights are random, so it tells little "
            "about pictures",
            **self._notes,
            **{f"left out, {name}": why for name, why in self.left_out.items()},
        }
        if self._options.json is None:
            keep(rows, self._base.name, notes)
        else:
            write(self._options.json, rows, self._base.name, notes)


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
    add("--alone", action="store_true", help="each technique alone instead of the recipe")
    add("--rounds", type=int, default=5, metavar="N")
    add("--seconds", type=float, default=480.0, help="begin nothing new after this long")
    add("--compile-only", action="store_true", help="fill torch's cache on disk, and measure nothing")
    add("--dynamic-vram", action="store_true", help="let ComfyUI manage the GPU's memory as its server does")
    add("--compiler", default="inductor", help="backend of torch.compile; eager compiles nothing, for rehearsals")


if __name__ == "__main__":
    main()
