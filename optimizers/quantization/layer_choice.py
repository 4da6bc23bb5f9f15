"""The choice of the linear layers to quantise, with a reason for each that is left, and their rounding: for all hosts.

Weights and tokens have one scale for each row. Each operation of rounding is that of comfy-kitchen's reference (eager)
backend, so a saved model gives the same bits in ComfyUI.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..core.errors import BackendUnavailable
from ..models.families import Family
from .int8_settings import QuantizationSettings
from .layer_times import KernelFailed, Timing, Timings

_EMBEDDING = "it embeds or modulates: little work, much effect"
_BORDER = "first and last layers stay in full precision"

PROTECTED: tuple[tuple[str, str], ...] = (
    (r"(^|\.)(time|label|clip|vector|text|img|cap|caption|t|y|x|context|image|patch|pos)_emb|_x_embedder", _EMBEDDING),
    (r"(^|\.)(add|class)_embedding|emb_layers|timestep|time_text|time_proj|time_in\b|vector_in\b", _EMBEDDING),
    (r"guidance|time_stack.*time_pos", _EMBEDDING),
    (r"modulation|adaln|(^|[._])mod([._]|$)|scale_shift|(^|\.)norm\w*\.linear$", _EMBEDDING),
    (r"(^|\.)(img_in|txt_in|pos_embed|patch_embedding|text_embedding)\b", _BORDER),
    (r"refiner|encoder_hid_proj", "it prepares the text"),
    (r"^(final_layer|all_final_layer|last_layer|head|norm_out|proj_out|out)\b|^input_blocks\.0\.", _BORDER),
    # Z-Image and Lumina 2: their first layer has outliers that the others do not.
    (r"^layers\.0\.", "the first layer has outliers"),
)
"""Pattern of a name (searched, in either case) of layers that stay in floating point, and the reason; those of one
family alone are in ``Family.protected``."""

GATED_OUTPUT = (
    r"(ff\.net\.2|ffn\.net\.2|mlp\.2|mlp\.fc2|mlp\.c_proj|\.w2|linear2|ffn\.2|ff_context\.net\.2|mlp\.net\.2"
    r"|mlp\.down_proj|img_mlp\.out|feed_forward\.(linear_2|out_layer)|single_transformer_blocks\.\d+\.proj_out)$"
)
"""Pattern of names of layers after an activation (GEGLU, GELU, SwiGLU), whose inputs have long tails."""

TEST_TOKENS = 64

_SMALLEST = 1e-30

Weight = Callable[[], Tensor]
"""Reads a layer's weight ``[out, in]``."""

Measure = Callable[[int, int], Timing]
"""Gives the times of a layer with so many channels in and out; raises `KernelFailed` where int8 cannot be computed."""


@dataclass(frozen=True)
class Int8Weight:
    """A linear layer's weight, about ``values * scale``: int8 ``[out, in]``, and float32 ``[out, 1]``."""

    values: Tensor
    scale: Tensor

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scale.nbytes

    def to(self, device: torch.device) -> Int8Weight:
        return Int8Weight(self.values.to(device), self.scale.to(device))


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 values ``[..., channels]`` and a float32 scale ``[..., 1]`` for each row: symmetric, to nearest."""
    scale = (x.abs().amax(dim=-1, keepdim=True).float() / 127.0).clamp_(min=_SMALLEST)
    divisor = scale.to(x.dtype)
    if x.dtype == torch.float16:  # the smallest scales are zero there
        divisor = torch.where(divisor == 0, torch.finfo(x.dtype).tiny, divisor)
    # In 16 bits the scale is rounded, and the largest value can come out as 128.
    rounded = (x / divisor).round_()
    return (rounded if x.dtype == torch.float32 else rounded.clamp_(-128.0, 127.0)).to(torch.int8), scale


def quantize_weight(weight: Tensor) -> Int8Weight:
    """Quantise a weight ``[out, in]``. Computes in float32."""
    return Int8Weight(*quantize_rows(weight.float()))


def protected_because(name: str, family: Family | None = None) -> str:
    """Return why the layer of this name must stay in floating point, or an empty string; names are of either host."""
    patterns = (*(family.protected if family is not None else ()), *PROTECTED)
    return next((reason for pattern, reason in patterns if re.search(pattern, name, re.IGNORECASE)), "")


@dataclass(frozen=True)
class Layer:
    """One linear layer of a network, with so many channels in and out.

    ``nbytes``: of its weight now; ``protected``: why it must stay in floating point, if it must.
    """

    name: str
    inputs: int
    outputs: int
    nbytes: int
    protected: str = ""

    @classmethod
    def of(cls, name: str, weight: Tensor, family: Family | None = None) -> Layer:
        """Describe the layer of a model of ``family`` that has the weight ``[out, in]``."""
        rows, columns = weight.shape
        return cls(name, columns, rows, weight.nbytes, protected_because(name, family))


@dataclass(frozen=True)
class LayerChoice:
    """The choice for one layer: its int8 ``weight``, or the ``reason`` why it stays in floating point.

    ``error``: relative L2 error of its output, where that was measured.
    """

    layer: Layer
    weight: Int8Weight | None = None
    reason: str = ""
    error: float | None = None
    timing: Timing | None = None

    def on(self, device: torch.device) -> LayerChoice:
        return self if self.weight is None else replace(self, weight=self.weight.to(device))


def choose_layer(
    layer: Layer, weight: Weight, settings: QuantizationSettings, measure: Measure | None, device: torch.device
) -> LayerChoice:
    """Return the choice for ``layer``, whose ``weight`` is read, and rounded on ``device``, only if it is needed.

    ``measure``: gives the times of a size; None where speed does not matter: for weights only, or for their memory.
    """
    before = choose_unread(layer, settings, measure)
    if before.reason:
        return before
    weights_only = settings.mode == "weight_only"
    quantized, error = _quantized(layer, weight().to(device).float(), weights_only)
    most = settings.thresholds.max_error
    if not (weights_only or settings.is_included(layer.name) or error <= most):
        return replace(before, error=error, reason=f"its error would be above {most:.1%}")
    return replace(before, weight=quantized, error=error)


def choose_unread(layer: Layer, settings: QuantizationSettings, measure: Measure | None) -> LayerChoice:
    """Return the choice for a layer that stays as it is whatever its weights are; without a reason, they decide."""
    if settings.is_excluded(layer.name):
        return LayerChoice(layer, reason="excluded by name")
    if layer.protected:
        return LayerChoice(layer, reason=layer.protected)
    if settings.mode == "weight_only" or measure is None:
        return LayerChoice(layer)
    try:
        timing = measure(layer.inputs, layer.outputs)
    except KernelFailed as failed:
        return LayerChoice(layer, reason=f"the int8 product: {failed.args[0]}")
    slow = timing.speedup < settings.thresholds.min_speedup and not settings.is_included(layer.name)
    return LayerChoice(layer, reason="int8 is not quicker for its size" if slow else "", timing=timing)


def _quantized(layer: Layer, values: Tensor, weights_only: bool) -> tuple[Int8Weight, float]:
    """Return a float32 weight in int8, and the relative L2 error of the layer's output for random tokens."""
    generator = torch.Generator().manual_seed(layer.inputs)  # the same tokens at each call
    x = torch.randn(TEST_TOKENS, layer.inputs, generator=generator)
    if re.search(GATED_OUTPUT, layer.name):
        x *= torch.nn.functional.gelu(torch.randn(TEST_TOKENS, layer.inputs, generator=generator))
    quantized, x = quantize_weight(values), x.to(values.device)
    tokens, expected = x, x @ values.t()
    if not weights_only:
        rounded, scale = quantize_rows(x)
        tokens = rounded.float() * scale
    # In place: next to the values of the largest layer, each copy in float32 counts.
    result = tokens @ quantized.values.float().mul_(quantized.scale).t()
    return quantized, float((result - expected).norm() / expected.norm().clamp(min=1e-30))


@dataclass(frozen=True)
class LayerChoices:
    """The choices for ``all`` layers of a network; ``notes``: names that fit no layer.

    ``kernel``: the name of what computes the products; empty for weight only.
    """

    all: tuple[LayerChoice, ...] = ()
    kernel: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def quantized(self) -> dict[str, LayerChoice]:
        return {choice.layer.name: choice for choice in self.all if choice.weight is not None}

    @property
    def bytes_before(self) -> int:
        return sum(choice.layer.nbytes for choice in self.all)

    @property
    def bytes_after(self) -> int:
        return sum(each.layer.nbytes if each.weight is None else each.weight.nbytes for each in self.all)

    def seconds(self) -> Timing | None:
        """Return the times of the quantised layers together, where they were measured."""
        timings = [choice.timing for choice in self.quantized.values() if choice.timing is not None]
        return Timing(sum(t.floating for t in timings), sum(t.int8 for t in timings)) if timings else None

    def worst(self) -> LayerChoice | None:
        found = [choice for choice in self.quantized.values() if choice.error is not None]
        return max(found, key=lambda choice: choice.error or 0.0, default=None)


def quantizing_device(name: str, load_device: torch.device) -> torch.device:
    """Return where to quantise for the setting ``device``; `BackendUnavailable` for a GPU that is not there."""
    if name == "gpu" and load_device.type == "cpu":
        raise BackendUnavailable(
            "device is gpu, but there is no GPU for this model.", "Choose auto or cpu: both quantise on the CPU here."
        )
    return torch.device("cpu") if name == "cpu" else load_device


def choose_layers(
    layers: Iterable[tuple[Layer, Weight]],
    settings: QuantizationSettings,
    device: torch.device,
    timings: Timings | None = None,
    each: Callable[[LayerChoice], LayerChoice] = lambda choice: choice,
) -> LayerChoices:
    """Choose layer by layer: beside the int8 weights, it needs a few float32 copies of one layer.

    Each weight is read only where it is needed; it is quantised on ``device``. ``timings``: of the device that the
    model computes on, not asked for weight only. None: layers are chosen by their error alone.
    ``each`` is given each choice, and returns it with the weight where it is to stay.
    """
    layers, timed = list(layers), timings if settings.mode == "int8" else None
    notes = [
        f"{name} names no layer of this model"
        for name, is_named in (("include", settings.is_included), ("exclude", settings.is_excluded))
        if getattr(settings, name) and not any(is_named(layer.name) for layer, _ in layers)
    ]
    measure = None if timed is None else timed.time
    with torch.inference_mode():
        choices = tuple(each(choose_layer(layer, weight, settings, measure, device)) for layer, weight in layers)
    return LayerChoices(choices, "" if timed is None else timed.kernel, tuple(notes))
