"""``python -m paceline bench | recipe | grid``: the diffusers documentation's tables and pictures, measured here."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ...core.errors import InvalidSetting
from ...optimizers.compilation.settings import BACKENDS, MODES
from ..exit_status import exit_status
from . import grid
from .architectures import REAL_WIDTH
from .measure import Cell, measure
from .pipelines import PIPELINES, NamedPipeline, random_pipeline, trained_pipeline, usual_size
from .record import Record
from .tables import markdown, ordered, plot, row
from .variants import RECIPE, Variant, recipe, require_rows, variants


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(words)
    options.command = shlex.join(["python", "-m", "paceline", *words])
    commands: dict[str, Callable[[argparse.Namespace], None]] = {"bench": _bench, "recipe": _recipe, "grid": _grid}
    stopped = "\npaceline: stopped. The same command continues from here."
    return exit_status(lambda: commands[options.task](options), stopped, "paceline: ")


def _bench(options: argparse.Namespace) -> None:
    _run(options, variants(options.variants, options.compile_backend, options.compile_mode), "Benchmark")


def _recipe(options: argparse.Namespace) -> None:
    rows = tuple(options.rows.split(",")) if options.rows else RECIPE
    left_out = options.without.split(",") if options.without else []
    require_rows([*rows, *left_out])
    chosen = tuple(name for name in rows if name not in left_out)
    _run(options, recipe(chosen, options.compile_backend, options.compile_mode), "Recipe")


def _run(options: argparse.Namespace, chosen: tuple[Variant, ...], title: str) -> None:
    from tqdm import tqdm

    sizes = _numbers("size", options.size or str(usual_size(options.pipeline)))
    batches = _numbers("batch", options.batch)
    pipeline = _pipeline(options)
    print(f"{pipeline.about}; {'speed does not depend on weights' if pipeline.random_weights else 'trained'}")
    record = Record(options.output, _setup(options, chosen), _about(options, pipeline))
    cells = [(one, Cell(one.name, size, batch)) for size in sizes for batch in batches for one in chosen]
    todo = [(one, cell) for one, cell in cells if cell not in record.results]
    if len(todo) < len(cells):
        print(f"{len(cells) - len(todo)} of {len(cells)} results are in {record.file} already")
    calls = 1 + options.rounds
    with tqdm(total=len(todo) * calls, unit="call", disable=options.quiet) as bar:
        for number, (variant, cell) in enumerate(todo, 1):
            bar.set_description(f"{cell.variant}, {cell.size}, batch {cell.batch}")
            result = measure(pipeline, variant, cell, options.steps, options.rounds, bar.update)
            bar.update(number * calls - bar.n)  # what ran out of memory made fewer calls
            record.add(result)
            bar.write(row(record, result, chosen[0].name))
    names = [variant.name for variant in chosen]
    heading = f"{title}: {options.pipeline}"
    if not ordered(record, names):
        return
    text = markdown(record, names, heading)
    (options.output / "results.md").write_text(text)
    plot(record, names, heading).save(options.output / "results.png")
    print(f"\n{text}\nWritten to {options.output}: results.json, results.md, results.png")


def _grid(options: argparse.Namespace) -> None:
    from tqdm import tqdm

    prompts = grid.read_prompts(options.prompts)
    chosen = variants(options.variants, options.compile_backend, options.compile_mode)
    (size,) = _numbers("size", options.size or str(usual_size(options.pipeline)))[:1]
    pipeline = _pipeline(options)
    columns = []
    for variant in tqdm(chosen, unit="variant", disable=options.quiet):
        columns.append((variant.name, grid.draw_all(pipeline, variant, prompts, size, options.steps, options.seed)))
    lines = [pipeline.about, f"{size} x {size}, {options.steps} steps, seeds from {options.seed} on"]
    options.output.mkdir(parents=True, exist_ok=True)
    sheet = grid.sheet(columns, prompts, f"{options.pipeline}: {chosen[0].name} and others", lines)
    sheet.save(options.output / "grid.png")
    rows = []
    for name, pictures in columns:
        for prompt, found in zip(prompts, grid.distances(pictures, columns[0][1]), strict=True):
            rows.append({"variant": name, "prompt": prompt, "psnr": found.psnr, "ssim": found.ssim, "rmse": found.rmse})
            print(f"{name}: {prompt}: {found}")
    content = {**_about(options, pipeline), "setup": _setup(options, chosen), "size": size, "seed": options.seed}
    (options.output / "grid.json").write_text(json.dumps({**content, "rows": rows}, indent=1) + "\n")
    print(f"\nWritten to {options.output}: grid.png, grid.json")


def _pipeline(options: argparse.Namespace) -> NamedPipeline:
    if options.weights:
        return trained_pipeline(options.pipeline, options.weights, options.device)
    return random_pipeline(options.pipeline, options.width, device=options.device)


def _setup(options: argparse.Namespace, chosen: Sequence[Variant]) -> dict[str, Any]:
    return {
        "pipeline": options.pipeline,
        "weights": options.weights or "random",
        "width": REAL_WIDTH if options.weights else options.width,
        "device": options.device,
        "steps": options.steps,
        "rounds": getattr(options, "rounds", 1),
        "settings": {variant.name: [repr(setting) for setting in variant.settings] for variant in chosen},
    }


def _about(options: argparse.Namespace, pipeline: NamedPipeline) -> dict[str, Any]:
    return {"about": pipeline.about, "random_weights": pipeline.random_weights, "command": options.command}


def _numbers(name: str, text: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or any(number < 1 for number in found) or (name == "size" and any(number % 8 for number in found)):
        allowed = "multiples of 8" if name == "size" else "positive whole numbers"
        raise InvalidSetting(f"{name} is {text!r}.", f"It must be {allowed}, separated by commas.")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m paceline", description=__doc__)
    tasks = parser.add_subparsers(dest="task", required=True)
    bench = _common(tasks.add_parser("bench", help="seconds and it/s of variants, by size and batch"))
    bench.add_argument("--variants", default="plain,tome,kv", help="e.g. plain,tome,tome+xformers; first is baseline")
    rows = _common(tasks.add_parser("recipe", help="fp32 -> bf16 -> SDPA -> compile -> QKV -> int8, row by row"))
    rows.add_argument("--rows", help=f"only these rows, of {','.join(RECIPE)}")
    rows.add_argument("--without", help="leave these out of all rows")
    pictures = _common(tasks.add_parser("grid", help="pictures of variants side by side, with their distances"))
    pictures.add_argument("--prompts", type=Path, required=True, help="text file with one prompt a line")
    pictures.add_argument("--variants", default="plain,tome,kv", help="as for bench")
    pictures.add_argument("--seed", type=int, default=0, help="of the first prompt; counted up")
    for measured in (bench, rows):
        measured.add_argument("--batch", default="1", help="pictures at once, e.g. 1,4,16")
        measured.add_argument("--rounds", type=_positive, default=3, help="timed calls of each cell")
    return parser


def _common(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--pipeline", choices=PIPELINES, default="sdxl")
    parser.add_argument("--weights", help="folder or Hugging Face id; without: random weights in the same architecture")
    parser.add_argument("--width", type=int, default=REAL_WIDTH, help="narrow a random network to this many channels")
    parser.add_argument("--size", help="side in pixels, e.g. 512,768,1024; default: what the model was made for")
    parser.add_argument("--steps", type=_positive, default=30)
    parser.add_argument("--device", default=device)
    parser.add_argument("--compile-backend", choices=BACKENDS, default="inductor")
    parser.add_argument("--compile-mode", choices=MODES, default="max-autotune")
    parser.add_argument("--output", type=Path, default=Path("paceline-results"), help="folder; runs can be resumed")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
