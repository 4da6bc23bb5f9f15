"""The choice of linear layers to quantise, with a reason for each that is left. One rule for all hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ...core.kernel_times import KernelFailed
from ..families.family import Family
from .kernels import Kernel
from .layer_times import Shape, Timing
from .rounding import ROTATION_GROUPS, Int8Weight, quantize_rows, quantize_weight, rotate
from .settings import QuantizationSettings

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

FEWEST_TOKENS = 17
"""Layers with fewer tokens (time and size embeddings: one per image) are left alone: int8 products on GPUs need more,
and there is nothing to gain."""

ASSUMED_TOKENS = 4096
"""Tokens of a layer where the number is not known: those of an image of 1024 x 1024."""

TEST_TOKENS = 64

Measure = Callable[[Shape], Timing]
"""Gives the times of a shape; raises ``KernelFailed`` where the kernel cannot compute it."""


def protected_because(name: str, family: Family | None = None) -> str:
    """Return why the layer of this name must stay in floating point, or an empty string; names are of either host."""
    patterns = (*(family.protected if family is not None else ()), *PROTECTED)
    return next((reason for pattern, reason in patterns if re.search(pattern, name, re.IGNORECASE)), "")


@dataclass(frozen=True)
class Layer:
    """One linear layer of a network, or several that are one product.

    Attributes:
        inputs, outputs: channels.
        tokens: how many rows it is given in one call of the network; None where that is not known.
        nbytes: bytes of its weight now.
        protected: why it must stay in floating point, if it must.
    """

    name: str
    inputs: int
    outputs: int
    tokens: int | None
    nbytes: int
    protected: str = ""

    @classmethod
    def of(cls, name: str, weight: Tensor, tokens: int | None, family: Family | None = None) -> Layer:
        """Describe the layer of a model of ``family`` that has the weight ``[out, in]``."""
        rows, columns = weight.shape
        return cls(name, columns, rows, tokens, weight.nbytes, protected_because(name, family))

    def shape(self, rotation: int = 0) -> Shape:
        """Return its work."""
        return Shape(self.tokens or ASSUMED_TOKENS, self.inputs, self.outputs, rotation)

    @property
    def has_enough_tokens(self) -> bool:
        """Whether it is given enough tokens for int8 products, as far as that is known."""
        return self.tokens is None or self.tokens >= FEWEST_TOKENS


@dataclass(frozen=True)
class LayerChoice:
    """The choice for one layer.

    Attributes:
        weight: the int8 weight, or None if it stays in floating point.
        reason: why it stays; empty if it is quantised.
        error: relative L2 error of its output, where that was measured.
    """

    layer: Layer
    weight: Int8Weight | None = None
    reason: str = ""
    error: float | None = None
    timing: Timing | None = None

    def is_near(self, max_error: float) -> bool:
        return self.error is not None and self.error <= max_error

    def on(self, device: torch.device) -> LayerChoice:
        if self.weight is None:
            return self
        values, scale = self.weight.values.to(device), self.weight.scale.to(device)
        return replace(self, weight=replace(self.weight, values=values, scale=scale))


def usual_tokens(layer: Layer) -> Tensor:
    """Return random tokens ``[some, inputs]`` as a layer is usually given, the same ones at each call."""
    generator = torch.Generator().manual_seed(layer.inputs)
    x = torch.randn(TEST_TOKENS, layer.inputs, generator=generator)
    if re.search(GATED_OUTPUT, layer.name):
        x *= torch.nn.functional.gelu(torch.randn(TEST_TOKENS, layer.inputs, generator=generator))
    return x


def output_error(weight: Tensor, quantized: Int8Weight, x: Tensor) -> float:
    """Return the relative L2 error of a layer's output for the tokens ``x``; all in float32 on one device."""
    values, scale = quantize_rows(rotate(x, quantized.rotation))
    result = ((values.float() * scale) @ quantized.values.float().t()) * quantized.scale.reshape(1, -1)
    expected = x @ weight.t()
    norm = expected.norm()
    return float((result - expected).norm() / norm) if norm > 0 else 0.0


class Chooser:
    """Chooses layer by layer, computing on ``device``.

    ``measure``: gives the times of a shape; None where speed does not matter (weight only). ``samples``: tokens
    ``[some, inputs]`` that layers were given in a real run, by the layer's name.
    """

    def __init__(
        self,
        settings: QuantizationSettings,
        measure: Measure | None,
        samples: Mapping[str, Tensor],
        device: torch.device,
    ) -> None:
        self.settings, self.measure, self.samples, self.device = settings, measure, samples, device

    def choose(self, layer: Layer, weight: Callable[[], Tensor]) -> LayerChoice:
        """Return the choice for ``layer``, whose ``weight`` ``[out, in]`` is read only if it is needed."""
        if self.settings.is_excluded(layer.name):
            return LayerChoice(layer, reason="excluded by name")
        if layer.protected:
            return LayerChoice(layer, reason=layer.protected)
        if self.settings.mode == "weight_only" or self.measure is None:
            return self._quantized(layer, weight().to(self.device).float())
        if not layer.has_enough_tokens:
            return LayerChoice(layer, reason=f"fewer than {FEWEST_TOKENS} tokens")
        try:
            return self._choose_by_time(layer, weight, self.measure)
        except KernelFailed as failed:
            return LayerChoice(layer, reason=f"the int8 product: {failed.args[0]}")

    def _choose_by_time(self, layer: Layer, weight: Callable[[], Tensor], measure: Measure) -> LayerChoice:
        wanted = self.settings.thresholds
        plain = measure(layer.shape())
        included = self.settings.is_included(layer.name)
        if plain.speedup < wanted.min_speedup and not included:
            return LayerChoice(layer, reason="int8 is not quicker for its size", timing=plain)
        values = weight().to(self.device).float()
        first = self._quantized(layer, values, timing=plain)
        if included or first.is_near(wanted.max_error):
            return first
        for group in () if self.settings.rotation == "off" else ROTATION_GROUPS:
            if layer.inputs % group == 0 and (timing := measure(layer.shape(group))).speedup >= wanted.min_speedup:
                rotated = self._quantized(layer, values, group, timing)
                if rotated.is_near(wanted.max_error):
                    return rotated
        reason = f"its error would be above {wanted.max_error:.1%}"
        return LayerChoice(layer, reason=reason, error=first.error, timing=plain)

    def _quantized(self, layer: Layer, values: Tensor, rotation: int = 0, timing: Timing | None = None) -> LayerChoice:
        quantized = quantize_weight(values, rotation)
        seen = self.samples.get(layer.name)
        x = (usual_tokens(layer) if seen is None else seen.float()).to(self.device)
        if self.settings.mode == "weight_only":
            # In place: next to the values of the largest layer, each copy in float32 counts.
            difference = quantized.values.float().mul_(quantized.scale).sub_(values)
            error = float((x @ difference.t()).norm() / (x @ values.t()).norm().clamp(min=1e-30))
        else:
            error = output_error(values, quantized, x)
        return LayerChoice(layer, weight=quantized, error=error, timing=timing)


@dataclass(frozen=True)
class LayerChoices:
    """The choices for all layers of a network.

    Attributes:
        all: a choice for each layer; empty if the file was in int8 already.
        kernel: what computes the products; None for weight only.
        notes: why other kernels are not used, where the token counts come from.
    """

    all: tuple[LayerChoice, ...] = ()
    kernel: Kernel | None = None
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
