"""Decide and quantise, layer by layer, when the node Quantize int8 runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .....core.errors import BackendUnavailable, InvalidSetting, UnsupportedModel
from ....quantization.kernels import Kernel, Kitchen, available
from ....quantization.layers import FEWEST_TOKENS, Chooser, Decisions, Layer, Timings, Tokens, Verdict
from ....quantization.rounding import Int8Weight
from ....quantization.settings import QuantizationSettings
from ....quantization.timing import Shape, Timer, fastest
from ..model import describe_model, inference_dtype, require_model
from ..paths import user_folder
from ..weight_swap import original, unload
from .calibration import Observations, observe_run, observe_shapes, typical_latent
from .network import has_int8_layers, linear_layers
from .technique import Int8Quantization
from .text import megabytes

TIMINGS = "int8_timings.json"
"""File in our user folder where timings are remembered."""


def quantize(
    patcher: Any,
    settings: QuantizationSettings,
    node_id: str | None = None,
    conditioning: Any = None,
    latent: Tensor | None = None,
) -> Int8Quantization:
    """Return the technique for a MODEL, its int8 weights made.

    Args:
        patcher: a MODEL; with LoRAs or not, quantised by us before or not.
        settings: of the node.
        node_id: the node to report to.
        conditioning: a CONDITIONING for one sampling step, to measure the layers' errors on what they are really given.
        latent: ``[batch, channels, height, width]``, the size that will be sampled.

    Raises:
        UnsupportedModel: if nothing in the model can be in int8, or nothing would gain.
        BackendUnavailable: if the device that was asked for is not there.
    """
    require_model(patcher)
    home = original(patcher)
    unload(home)
    weight_only = settings.mode == "weight_only"
    device, dtype = torch.device(home.load_device), inference_dtype(home)
    if has_int8_layers(home):
        return Int8Quantization(settings, Decisions(()), *_kernel(Shape(4096, 1280, 1280), device, dtype), node_id)

    seen = _observe(home, conditioning, latent)
    unload(home)
    layers = linear_layers(home, seen.tokens)
    kernel: Kernel | None = None
    notes: tuple[str, ...] = ()
    timings: Timings | None = None
    timer: Timer | None = None
    if not weight_only:
        kernel, notes = _kernel(_largest(layers.values()), device, dtype)
        timer = Timer(kernel, device, dtype, user_folder(TIMINGS))
        timings = timer.time
        notes = (*notes, f"token counts of {seen.source or 'an image of 1024 x 1024, estimated'}")
    decisions = _decide(layers, settings, timings, Tokens(seen.samples), _device(settings.device, device), home)
    if timer is not None:
        timer.remember()
    if not decisions.quantized:
        raise _nothing_gained(home, decisions, settings, timings, notes)
    return Int8Quantization(settings, decisions, kernel, notes, node_id)


def int8_gains(patcher: Any) -> bool:
    """Return whether Quantize int8 would find at least the MODEL's largest layer quicker in int8, measured."""
    home = original(patcher)
    try:
        layers = linear_layers(home, {})
    except UnsupportedModel:
        return False  # no linear layers, or quantised already
    shape, device, dtype = _largest(layers.values()), torch.device(home.load_device), inference_dtype(home)
    timer = Timer(_kernel(shape, device, dtype)[0], device, dtype, user_folder(TIMINGS))
    timing = timer.time(shape)
    timer.remember()
    return timing.speedup >= QuantizationSettings().limits.min_speedup


def _observe(home: Any, conditioning: Any, latent: Tensor | None) -> Observations:
    if conditioning is not None:
        if latent is None:
            raise InvalidSetting(
                "A conditioning is connected without a latent, so the size to calibrate for is not known.",
                "Connect the latent that will be sampled too, or neither.",
            )
        return observe_run(home, conditioning, latent)
    size = tuple(latent.shape[-2:]) if latent is not None else typical_latent(home)
    return observe_shapes(home, (size[0], size[1]))


def _largest(layers: Iterable[tuple[Layer, Any]]) -> Shape:
    """Return the shape that most work goes into, by which the kernel is chosen."""
    open_layers = [layer for layer, _ in layers if not layer.protected and (layer.tokens or 4096) >= FEWEST_TOKENS]
    work = [layer.shape() for layer in open_layers] or [Shape(4096, 1280, 1280)]
    return max(work, key=lambda shape: shape.tokens * shape.inputs * shape.outputs)


def _kernel(shape: Shape, device: torch.device, dtype: torch.dtype) -> tuple[Kernel, tuple[str, ...]]:
    """Return the fastest kernel on a device, and why others are not used."""
    kernels, reasons = available(device)
    kernel, failures = fastest(kernels, shape, device, dtype)
    slow = Kitchen().slow_because(device) if not isinstance(kernel, Kitchen) or device.type != "cpu" else ""
    lines = [f"not used here: {name}: {reason}" for name, reason in {**reasons, **failures}.items()]
    return kernel, (*lines, f"comfy-kitchen without its fast kernels: {slow}") if slow else tuple(lines)


def _device(name: str, load_device: torch.device) -> torch.device:
    if name == "gpu" and load_device.type == "cpu":
        raise BackendUnavailable(
            "device is gpu, but ComfyUI has no GPU for this model.",
            "Choose auto or cpu: both quantise on the CPU here.",
        )
    return torch.device("cpu") if name == "cpu" else load_device


def _decide(
    layers: dict[str, tuple[Layer, Any]],
    settings: QuantizationSettings,
    timings: Timings | None,
    tokens: Tokens,
    device: torch.device,
    home: Any,
) -> Decisions:
    """Quantise layer by layer: one float32 layer at a time is all the memory it needs beside the int8 weights."""
    import comfy.model_management
    import comfy.utils

    chooser = Chooser(settings, timings, tokens, device)
    progress = comfy.utils.ProgressBar(len(layers))
    verdicts: list[Verdict] = []
    with torch.inference_mode():
        for layer, module in layers.values():
            comfy.model_management.throw_exception_if_processing_interrupted()
            verdict = chooser.decide(layer, partial(_weight, module))
            verdicts.append(_resting(verdict, home.offload_device))
            progress.update(1)
    return Decisions(tuple(verdicts))


def _weight(module: Any) -> Tensor:
    weight: Tensor = module.weight
    return weight.detach()


def _resting(verdict: Verdict, device: Any) -> Verdict:
    """Return a verdict with its weight moved to where the model rests."""
    if verdict.weight is None:
        return verdict
    weight = verdict.weight
    moved = Int8Weight(weight.values.to(device), weight.scale.to(device), weight.rotation)
    return Verdict(verdict.layer, moved, verdict.reason, verdict.error, verdict.timing)


def _nothing_gained(
    home: Any, decisions: Decisions, settings: QuantizationSettings, timings: Timings | None, notes: tuple[str, ...]
) -> UnsupportedModel:
    """Return the error for a model in which nothing is to be in int8, with the numbers."""
    timed = [verdict.timing for verdict in decisions.verdicts if verdict.timing is not None]
    if timed:
        speedup = sum(t.floating for t in timed) / sum(t.int8 for t in timed)
        best = max(t.speedup for t in timed)
        problem = (
            f"None of the {len(decisions.verdicts)} linear layers of this {describe_model(home)} gains from int8 here: "
            f"all together would run at {speedup:.2f} x, the best one at {best:.2f} x. {'; '.join(notes[:-1])}"
        ).strip()
    else:
        problem = f"The settings ({settings.describe()}) leave no layer of this {describe_model(home)} to quantise."
    size = megabytes(sum(v.layer.nbytes for v in decisions.verdicts if not v.layer.protected))
    remedy = f"Choose mode weight_only to save memory instead (about half of {size}), or name layers with include."
    return UnsupportedModel(problem, remedy)
