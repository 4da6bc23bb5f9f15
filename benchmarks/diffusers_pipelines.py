"""Pipelines of diffusers with our techniques, with torchao and tomesd, and the published recipe for fast diffusion.

    python benchmarks/diffusers_pipelines.py [--quick] [--json PATH] [--threads N] [--pipeline sdxl] [--weights PATH]
                                             [--sizes 512 1024] [--batches 1 4] [--steps 30] [--rounds 3]
                                             [--variants plain tome tome+xformers ...] [--recipe [ROW ...]]
                                             [--prompts FILE --pictures FILE.png]

A variant joins parts by ``+``; the first one is the baseline. ``--recipe`` goes through the rows of diffusers'
"Accelerate inference of text-to-image diffusion models", each on top of the rows before it. Each variant takes turns
with the baseline in a pipeline of its own. Without ``--weights``, a folder or a Hugging Face id, weights are random:
speed does not depend on them, pictures do. With ``--prompts``, one a line, each variant draws them from the same seeds,
and ``--pictures`` shows them side by side. Running out of memory, or a package that is missing, is a result.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from shared.measuring import arguments, measure, relative_error, wait
from shared.record import ROOT, Row, kept, report

sys.path.insert(0, str(ROOT / "tools"))
from diffusers_host.pipelines import KNOWN, NamedPipeline, random_pipeline  # noqa: E402
from paceline import (  # noqa: E402
    Attention,
    Compile,
    FuseQKV,
    Precision,
    QuantizeInt8,
    ScheduleOnCPU,
    TokenMerging,
    optimize,
)
from paceline.core.devices import is_out_of_memory  # noqa: E402
from paceline.core.errors import PacelineError, error_line  # noqa: E402
from paceline.workbench.measurement.quality import compare_pictures, to_8_bit  # noqa: E402

PROMPT = "a photo of an astronaut riding a horse on mars"
RECIPE = ("bf16", "sdpa", "compile", "qkv", "int8")
"""Rows of https://huggingface.co/docs/diffusers/tutorials/fast_diffusion."""
NOTES = {
    "first call": "seconds of the first call, which compiles",
    "relative error": "L2 distance of the pictures to the baseline's from the same seed",
    "psnr, ssim": "of the pictures of all prompts, mean; *psnr worst* of the worst one",
}


@dataclass(frozen=True)
class Variant:
    """A way to run a pipeline: its name, and what ``optimize`` is given."""

    name: str
    settings: tuple[Any, ...]


@dataclass
class Drawings:
    """What each variant makes of the prompts, ``[prompts, height, width, 3]`` in 8 bits."""

    prompts: Sequence[str]
    by_name: dict[str, torch.Tensor] = field(default_factory=dict)

    def add(self, name: str, baseline: str, draw: Callable[[str, int], torch.Tensor]) -> dict[str, float]:
        """Draw every prompt, each from the next seed; return how near to the baseline's the pictures are."""
        self.by_name[name] = torch.cat([draw(prompt, seed) for seed, prompt in enumerate(self.prompts)])
        pairs = zip(self.by_name[name], self.by_name[baseline], strict=True)
        found = [compare_pictures(ours[None], theirs[None]) for ours, theirs in pairs]
        psnrs = [one.psnr for one in found if one.psnr is not None]  # None: the same picture
        if not psnrs:
            return {}
        ssim = statistics.fmean(one.ssim for one in found)
        return {"psnr": statistics.fmean(psnrs), "psnr_worst": min(psnrs), "ssim": ssim}

    def save(self, path: Path) -> None:
        """Write a row for each prompt, with a column for each variant in their order."""
        from PIL import Image

        rows = torch.cat(list(torch.cat(list(self.by_name.values()), dim=2)), dim=0)
        Image.fromarray(rows.numpy()).save(path)
        print(f"{path}: {', '.join(self.by_name)}")


def parts(backend: str) -> dict[str, Any]:
    """Return the settings that a variant is made of, by name."""
    tuned = {"mode": "max-autotune", "preset": "diffusion-fast"} if backend == "inductor" else {}
    return {
        "vanilla": Attention("vanilla"),
        "sdpa": Attention("sdpa"),
        "xformers": Attention("xformers"),
        "tome": TokenMerging(method="merge", ratio=0.5),
        "tomesd": TokenMerging(ratio=0.5, implementation="tomesd"),
        "kv": TokenMerging(ratio=0.75, method="kv_downsample"),
        "bf16": Precision("bf16"),
        "fp16": Precision("fp16"),
        "schedule": ScheduleOnCPU(),
        "qkv": FuseQKV(),
        "int8": QuantizeInt8(),
        "torchao": QuantizeInt8(implementation="torchao"),
        "compile": Compile(backend=backend, fullgraph=True, channels_last=True, on_error="raise", **tuned),
    }


def variants(names: Sequence[str], backend: str) -> list[Variant]:
    """Return the variants that join parts, e.g. ``plain``, ``tome+xformers``."""
    known = parts(backend)
    return [Variant(name, tuple(known[part] for part in name.split("+") if part != "plain")) for name in names]


def recipe(rows: Sequence[str], backend: str) -> list[Variant]:
    """Return the recipe's rows, each with what the chosen rows before it add."""
    known = parts(backend)
    settings = {"attention": known["vanilla"]}
    found = [Variant("fp32, plain attention", tuple(settings.values()))]
    for name in (row for row in RECIPE if row in rows):
        settings["attention" if name == "sdpa" else name] = known[name]
        found.append(Variant(f"+ {name}", tuple(settings.values())))
    return found


def pipeline(options: argparse.Namespace) -> NamedPipeline:
    """Return a new pipeline: with the weights that were given, or with random ones."""
    device, known = "cuda" if torch.cuda.is_available() else "cpu", KNOWN[options.pipeline]
    if not options.weights:
        return random_pipeline(options.pipeline, options.width, device)
    import diffusers

    pipe = getattr(diffusers, known.pipeline_class).from_pretrained(options.weights).to(device)
    pipe.set_progress_bar_config(disable=True)
    return NamedPipeline(options.pipeline, pipe, f"{known.about}, weights of {options.weights}", known.arguments)


def pictures(made: NamedPipeline, prompts: Sequence[str], size: int, steps: int, seed: int) -> torch.Tensor:
    """Return pictures ``[batch, height, width, 3]`` in [0, 1]."""
    drawn = made.call(list(prompts), size, steps, seed, output_type="pt").float().cpu()
    drawn = drawn / 2 + 0.5 if made.name in ("if-1", "if-2") else drawn  # DeepFloyd IF gives -1 to 1 as tensors
    return drawn.permute(0, 2, 3, 1)  # BCHW -> BHWC


def measured(
    options: argparse.Namespace, chosen: Sequence[Variant], size: int, batch: int, prompts: Sequence[str]
) -> Iterator[Row]:
    """Yield a row for each variant of one size and batch, the baseline's first."""
    plain, changed = pipeline(options), pipeline(options)
    work = f"{options.steps} steps: {plain.about}, {size} x {size}, batch {batch}"
    base, done, drawings, first = chosen[0], kept(work), Drawings(prompts), 0

    def draw(made: NamedPipeline, prompt: str, seed: int) -> torch.Tensor:
        return to_8_bit(pictures(made, [prompt], size, options.steps, seed))

    with optimize(plain.pipe, *base.settings):
        run = partial(pictures, plain, [PROMPT] * batch, size, options.steps, 0)
        expected = run()
        if prompts:
            drawings.add(base.name, base.name, partial(draw, plain))
        for variant in chosen[1:]:
            if variant.name in done:
                continue
            try:
                with optimize(changed.pipe, *variant.settings) as said:
                    other = partial(pictures, changed, [PROMPT] * batch, size, options.steps, 0)
                    begun = time.perf_counter()
                    error = relative_error(other(), expected)
                    wait()
                    numbers = {"first_call": time.perf_counter() - begun, "relative_error": error}
                    if prompts:
                        numbers |= drawings.add(variant.name, base.name, partial(draw, changed))
                    ways = {base.name: run, variant.name: other}
                    quality = {variant.name: numbers}
                    rows = measure(
                        work, ways, base.name, rounds=options.rounds, warmups=0, quality=quality, follow_tensors=False
                    )
                    print(said, file=sys.stderr, flush=True)
                yield from rows[first:]  # the baseline's once
                first = 1
            except (PacelineError, RuntimeError, MemoryError) as failed:
                if not isinstance(failed, PacelineError) and not is_out_of_memory(failed):
                    raise
                yield Row(f"{variant.name}: {error_line(failed)}", work)
    if options.pictures and prompts:
        drawings.save(options.pictures)


def main() -> None:
    """Measure every size and batch."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    if options.quick:
        options.width, options.steps, options.rounds = 32, 2, 1
    sizes = options.sizes or [128 if options.quick else KNOWN[options.pipeline].size]
    chosen = variants(options.variants, options.compiler)
    if options.recipe is not None:
        chosen = recipe(options.recipe or RECIPE, options.compiler)
    lines = options.prompts.read_text(encoding="utf-8").splitlines() if options.prompts else []
    prompts = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    rows: list[Row] = []
    for size in sizes:
        for batch in options.batches:
            rows += measured(options, chosen, size, batch, prompts)
    report(rows, chosen[0].name, options.json, NOTES)


def _variant(text: str) -> str:
    unknown = [part for part in text.split("+") if part not in ("plain", *parts("inductor"))]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no part {unknown[0]!r}; join plain, {', '.join(parts('inductor'))}")
    return text


def _more(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--pipeline", choices=tuple(KNOWN), default="sdxl")
    add("--weights", metavar="PATH", help="a folder that save_pretrained wrote, or a Hugging Face id")
    add("--width", type=int, default=320, metavar="N", help="channels of a UNet's first level; 320 is the real size")
    add("--sizes", type=int, nargs="+", metavar="SIDE", help="of the pictures, in pixels")
    add("--batches", type=int, nargs="+", default=[1], metavar="N")
    add("--steps", type=int, default=30, metavar="N")
    add("--rounds", type=int, default=3, metavar="N")
    add("--variants", type=_variant, nargs="+", default=["plain", "tome", "kv"], metavar="PART+PART")
    add("--recipe", nargs="*", choices=RECIPE, help="the recipe's rows, or these of them")
    add("--compiler", default="inductor", help="backend of torch.compile; eager compiles nothing, for rehearsals")
    add("--prompts", type=Path, metavar="FILE", help="text file with one prompt a line")
    add("--pictures", type=Path, metavar="FILE.png", help="the pictures of the prompts, side by side")


if __name__ == "__main__":
    main()
