"""Quantize int8: its kernel against plain layers, bfloat16 and torchao, layer by layer; one UNet step; and its quality.

    python benchmarks/quantization.py [--quick] [--json PATH] [--threads N] [--only layers|unet|quality]

Layers and the UNet have random weights, because time does not depend on them. Quality is measured on the icon model,
whose linear layers are too small to gain: there int8 counts as twice as quick, so that the choice is by error and by
kind of layer alone.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from shared.distances import NOTES as DISTANCES
from shared.distances import quality
from shared.measuring import Variant, arguments, measure, relative_error
from shared.nodes import node
from shared.record import Row, report
from shared.roof import peak_speed, place, speed_note
from shared.trained import ICONS, SOLVERS, Bench, quantized
from step_caches import controls

# isort: split
from comfy_host.in_process import bootstrap, random_conditioning, sample
from shared.unets import unet

FLOAT = "float16" if torch.cuda.is_available() else "float32"
BF16, OURS, TORCHAO = "bfloat16", "Quantize int8", "torchao int8"
COMPILED = "{}, torch.compile"
# SD 1.5 at 512 x 512 with guidance: (tokens, inputs, outputs) of what its transformer blocks compute.
LAYERS = {
    "attention, 320 channels": (8192, 320, 320),
    "GEGLU, 320 channels": (8192, 320, 2560),
    "feed-forward out, 320 channels": (8192, 1280, 320),
    "attention, 640 channels": (2048, 640, 640),
    "GEGLU, 640 channels": (2048, 640, 5120),
    "feed-forward out, 640 channels": (2048, 2560, 640),
    "attention, 1280 channels": (512, 1280, 1280),
    "GEGLU, 1280 channels": (512, 1280, 10240),
    "text keys, 1280 channels": (154, 768, 1280),
}
ON_A_GPU = {
    "SDXL, attention, 640 channels": (8192, 640, 640),
    "SDXL, GEGLU, 640 channels": (8192, 640, 5120),
    "SDXL, attention, 1280 channels": (2048, 1280, 1280),
    "SDXL, GEGLU, 1280 channels": (2048, 1280, 10240),
    "SDXL, feed-forward out, 1280 channels": (2048, 5120, 1280),
    "Flux.1, projections": (4608, 3072, 9216),
    "Flux.1, feed-forward": (4608, 3072, 12288),
    "Flux.1, single block out": (4608, 15360, 3072),
    "Z-Image, feed-forward": (4608, 3840, 10240),
    "Wan 14B, projection": (33600, 5120, 5120),
    "Wan 14B, feed-forward": (33600, 5120, 13824),
}
"""With guidance where the model has it; of transformers at 1024 x 1024, of Wan 81 frames of 640 x 640."""
QUICK_LAYERS = ("attention, 640 channels", "GEGLU, 640 channels", "attention, 1280 channels")
NOTES = {
    "error": "relative L2 error of the output against the layers as they are; tokens are Gaussian",
}
CHOICE_NOTES = {"layers": "how many layers are in int8"}


def torchao_layer(layer: torch.nn.Module) -> torch.nn.Module | None:
    """Return a copy of a layer as torchao quantises it, or None without torchao."""
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError:
        return None
    quantized = torch.nn.Sequential(copy.deepcopy(layer))
    quantize_(quantized, Int8DynamicActivationInt8WeightConfig())
    return quantized


def measure_layers(quick: bool, speed: float) -> list[Row]:
    """Measure single layers in every way."""
    from paceline.optimizers.quantization.kernels import available
    from paceline.optimizers.quantization.layer_times import Shape, Timings
    from paceline.optimizers.quantization.rounding import quantize_weight

    device, plain = place()
    kernel, _ = Timings(device, plain).fastest(available(device)[0], Shape(4096, 1280, 1280))
    rows: list[Row] = []
    layers = LAYERS if device.type == "cpu" else ON_A_GPU
    for name in QUICK_LAYERS if quick else layers:
        tokens, inputs, outputs = layers[name]
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(tokens, inputs, generator=generator).to(device, plain)
        layer = torch.nn.Linear(inputs, outputs, device=device, dtype=plain).requires_grad_(False)
        weight = quantize_weight(layer.weight)
        half, torchao = copy.deepcopy(layer).bfloat16(), torchao_layer(layer)
        ways: dict[str, Callable[[], torch.Tensor]] = {
            FLOAT: partial(layer, x),
            BF16: partial(half, x.bfloat16()),
            OURS: partial(kernel.linear, x, weight, layer.bias),
        }
        for other in available(device)[0]:
            if other.fast and other is not kernel:
                ways[f"{OURS}, {other.name}"] = partial(other.linear, x, weight, layer.bias)
        if torchao is not None:
            ways[TORCHAO] = partial(torchao, x)
        if quick:
            ways.pop(BF16)
        elif device.type == "cpu":  # our kernel is one operator, which compiling leaves as it is
            torch._dynamo.reset()
            ways[COMPILED.format(FLOAT)] = partial(torch.compile(layer), x)
            if torchao is not None:
                ways[COMPILED.format(TORCHAO)] = partial(torch.compile(torchao), x)
        exact = ways[FLOAT]()
        quality = {way: {"error": relative_error(run(), exact)} for way, run in ways.items() if way != FLOAT}
        work = f"{name}: {tokens} x {inputs} -> {outputs}, {kernel.name}"
        rows += measure(work, ways, FLOAT, rounds=3 if quick else 7, quality=quality, speed=speed)
    return rows


def measure_unet(quick: bool, speed: float) -> list[Row]:
    """Measure one sampling step of SD 1.5 with guidance: full precision, and each preset."""
    width, side = (128, 16) if quick else (320, 64)
    model = unet("SD1.5", width)
    conditioning = random_conditioning(model)
    latent = torch.zeros(1, 4, side, side)
    models = {FLOAT: model}
    for preset in ("quality", "balanced", "speed"):
        try:
            models[f"{OURS}, {preset}"] = node("PacelineQuantizeInt8", preset=preset)(model)
        except Exception as refused:  # the node says that nothing gains: that is the result
            print(f"{preset}: {refused}", file=sys.stderr)
    images: dict[str, torch.Tensor] = {}

    def run(name: str) -> None:
        images[name] = sample(models[name], conditioning, conditioning, latent, steps=1, cfg=7.0)

    variants: dict[str, Variant] = {name: partial(run, name) for name in models}
    for name in models:
        run(name)
    work = f"one step of SD1.5 with guidance, {width} channels, latent {side} x {side}, random weights"
    rows = measure(work, variants, FLOAT, rounds=3 if quick else 5, speed=speed, long=True)
    for row in rows:
        row.quality = {"error": relative_error(images[row.name], images[FLOAT])}
        if row.name != FLOAT:
            row.quality |= _chosen_layers(models[row.name])
    return rows


def _chosen_layers(model: Any) -> dict[str, float]:
    """Return what the node chose: layers, their bytes, their predicted speedup, their largest error."""
    from paceline.optimizers.hosts.comfyui.runtime.stack import stack_of

    choices = stack_of(model).techniques[0].policy.choices
    seconds = choices.seconds()
    slowest = min(v.timing.speedup for v in choices.quantized.values() if v.timing is not None)
    return {
        "layers": len(choices.quantized),
        "linear_bytes_before": choices.bytes_before,
        "linear_bytes_after": choices.bytes_after,
        "layers_speedup": seconds.speedup if seconds else math.nan,
        "slowest_layer_speedup": slowest,
        "largest_layer_error": (choices.worst().error or 0.0) if choices.worst() else 0.0,
    }


def measure_quality(quick: bool) -> Iterator[Row]:
    """Draw with the icon model, with the layers in int8 that each preset chooses, and with weights only."""
    from paceline.optimizers.hosts.comfyui.runtime.stack import stack_of

    bench = Bench(ICONS, SOLVERS[0], pairs=4 if quick else None)
    ways = {f"preset {name}": {"preset": name} for name in ("quality", "balanced", "speed")}
    for name, settings in (ways | {"weight_only": {"mode": "weight_only"}}).items():
        model = quantized(**settings)(bench.patcher)
        found, _ = quality(bench, (one.latent for one in bench.runs(lambda _, model=model: model)))
        choices = stack_of(model).techniques[0].policy.choices
        yield Row(name, bench.work, quality=found | {"layers": len(choices.quantized)})
    yield from (Row(name, bench.work, quality=numbers) for name, numbers in controls(bench))


def main() -> None:
    """Run all parts, or the one that was asked for."""
    options = arguments(__doc__.splitlines()[0], only=("layers", "unet", "quality"))
    bootstrap(cpu=not torch.cuda.is_available())
    rows: list[Row] = []
    notes: dict[str, str] = {}
    with torch.inference_mode():
        if options.only != "quality":
            device, dtype = place()
            speed = peak_speed(dtype, device, options.quick)
            rows += measure_layers(options.quick, speed) if options.only != "unet" else []
            rows += measure_unet(options.quick, speed) if options.only != "layers" else []
            notes |= NOTES | speed_note({dtype: speed})
        if options.only in (None, "quality"):
            rows += measure_quality(options.quick)
            notes |= {key: DISTANCES[key] for key in ("psnr", "share")}
        if options.only != "layers":
            notes |= CHOICE_NOTES
    report(rows, FLOAT, options.json, notes)


if __name__ == "__main__":
    main()
