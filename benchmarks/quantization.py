"""Quantize int8: its products against plain layers, bfloat16 and torchao, layer by layer; and one UNet step.

    python benchmarks/quantization.py [--quick] [--json PATH] [--threads N] [--only layers|unet]

Layers and the UNet have random weights, because time does not depend on them. Its pictures are in peers.py.
"""

from __future__ import annotations

import copy
import math
import sys
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import Any

import torch
from shared.measuring import Variant, arguments, measure, relative_error
from shared.nodes import node
from shared.record import Row, report
from shared.roof import peak_speed, place, speed_note

# isort: split
from comfy_host.in_process import bootstrap, random_conditioning, sample
from shared.unets import unet

FLOAT = "float16" if torch.cuda.is_available() else "float32"
BF16, OURS, TORCHAO = "bfloat16", "Quantize int8", "torchao int8"
PRESETS = ("quality", "balanced", "speed")
# SD 1.5 at 512 x 512 with guidance: (tokens, inputs, outputs) of what its transformer blocks compute.
LAYERS = {
    "attention, 320 channels": (8192, 320, 320), "GEGLU, 320 channels": (8192, 320, 2560),
    "feed-forward out, 320 channels": (8192, 1280, 320), "attention, 640 channels": (2048, 640, 640),
    "GEGLU, 640 channels": (2048, 640, 5120), "feed-forward out, 640 channels": (2048, 2560, 640),
    "attention, 1280 channels": (512, 1280, 1280), "GEGLU, 1280 channels": (512, 1280, 10240),
    "text keys, 1280 channels": (154, 768, 1280),
}  # fmt: skip
ON_A_GPU = {
    "SDXL, attention, 640 channels": (8192, 640, 640), "SDXL, GEGLU, 640 channels": (8192, 640, 5120),
    "SDXL, attention, 1280 channels": (2048, 1280, 1280), "SDXL, GEGLU, 1280 channels": (2048, 1280, 10240),
    "SDXL, feed-forward out, 1280 channels": (2048, 5120, 1280), "Flux.1, projections": (4608, 3072, 9216),
    "Flux.1, feed-forward": (4608, 3072, 12288), "Flux.1, single block out": (4608, 15360, 3072),
    "Z-Image, feed-forward": (4608, 3840, 10240), "Wan 14B, projection": (33600, 5120, 5120),
    "Wan 14B, feed-forward": (33600, 5120, 13824),
}  # fmt: skip
"""With guidance where the model has it; of transformers at 1024 x 1024, of Wan 81 frames of 640 x 640."""
NOTES = {"error": "relative L2 error of the output against the layers as they are; tokens are Gaussian"}


def in_torchao(layer: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a layer as torchao quantises it."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantized = torch.nn.Sequential(copy.deepcopy(layer))
    quantize_(quantized, Int8DynamicActivationInt8WeightConfig())
    return quantized


def measure_layers(quick: bool, speed: float) -> list[Row]:
    """Measure single layers in every way."""
    from comfy_kitchen import int8_linear
    from paceline.optimizers.in_comfyui.int8_linear import KERNEL
    from paceline.optimizers.quantization.layer_choice import quantize_weight

    device, plain = place()
    rows: list[Row] = []
    for name, sizes in islice((LAYERS if device.type == "cpu" else ON_A_GPU).items(), 1 if quick else None):
        tokens, inputs, outputs = sizes
        x = torch.randn(tokens, inputs, generator=torch.Generator().manual_seed(0)).to(device, plain)
        layer = torch.nn.Linear(inputs, outputs, device=device, dtype=plain).requires_grad_(False)
        weight, half = quantize_weight(layer.weight), copy.deepcopy(layer).bfloat16()
        ways: dict[str, Variant] = {FLOAT: partial(layer, x), BF16: partial(half, x.bfloat16())}
        ways[OURS] = partial(int8_linear, x, weight.values, weight.scale, layer.bias, x.dtype)
        others = {FLOAT: layer}
        if find_spec("torchao"):
            others[TORCHAO] = in_torchao(layer)
            ways[TORCHAO] = partial(others[TORCHAO], x)
        if device.type == "cpu" and not quick:  # int8's is one operator, which compiling leaves as it is
            torch._dynamo.reset()
            ways |= {f"{way}, torch.compile": partial(torch.compile(made), x) for way, made in others.items()}
        exact = ways[FLOAT]()
        quality = {way: {"error": relative_error(run(), exact)} for way, run in ways.items() if way != FLOAT}
        work = f"{name}: {tokens} x {inputs} -> {outputs}, {KERNEL}"
        rows += measure(work, ways, FLOAT, rounds=3 if quick else 7, quality=quality, speed=speed)
    return rows


def measure_unet(quick: bool, speed: float) -> list[Row]:
    """Measure one sampling step of SD 1.5 with guidance: full precision, and each preset."""
    width, side = (128, 16) if quick else (320, 64)
    model = unet("SD1.5", width)
    text, latent = random_conditioning(model), torch.zeros(1, 4, side, side)
    models = {FLOAT: model}
    for preset in PRESETS:
        try:
            models[f"{OURS}, {preset}"] = node("PacelineQuantizeInt8", preset=preset)(model)
        except Exception as refused:  # the node says that nothing gains: that is the result
            print(f"{preset}: {refused}", file=sys.stderr)
    variants: dict[str, Variant] = {
        name: partial(sample, one, text, text, latent, steps=1, cfg=7.0) for name, one in models.items()
    }
    images = {name: run() for name, run in variants.items()}
    quality = {name: {"error": relative_error(image, images[FLOAT])} for name, image in images.items()}
    for name in models.keys() - {FLOAT}:
        quality[name] |= _chosen_layers(models[name])
    work = f"one step of SD1.5 with guidance, {width} channels, latent {side} x {side}, random weights"
    rounds = 3 if quick else 5
    return measure(work, variants, FLOAT, rounds=rounds, quality=quality, speed=speed, long=True)


def _chosen_layers(model: Any) -> dict[str, float]:
    """Return what the node chose: layers, their bytes, their predicted speedup, their largest error."""
    from paceline.optimizers.in_comfyui.run.stack import stack_of

    choices = stack_of(model).techniques[0].policy.choices
    seconds, worst = choices.seconds(), choices.worst()
    return {
        "layers": len(choices.quantized),
        "linear_bytes_before": choices.bytes_before,
        "linear_bytes_after": choices.bytes_after,
        "layers_speedup": seconds.speedup if seconds else math.nan,
        "slowest_layer_speedup": min(one.timing.speedup for one in choices.quantized.values() if one.timing),
        "largest_layer_error": (worst.error or 0.0) if worst else 0.0,
    }


def main() -> None:
    """Run both parts, or the one that was asked for."""
    options = arguments(__doc__.splitlines()[0], only=("layers", "unet"))
    bootstrap(cpu=not torch.cuda.is_available())
    device, dtype = place()
    with torch.inference_mode():
        speed = peak_speed(dtype, device, options.quick)
        rows = measure_layers(options.quick, speed) if options.only != "unet" else []
        rows += measure_unet(options.quick, speed) if options.only != "layers" else []
    notes = NOTES if options.only == "layers" else NOTES | {"layers": "how many layers are in int8"}
    report(rows, FLOAT, options.json, notes | speed_note({dtype: speed}))


if __name__ == "__main__":
    main()
