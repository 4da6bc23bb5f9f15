"""Which linear layers are quantised, and why each of the others is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .rounding import ROTATION_GROUPS, Int8Weight, quantize_rows, quantize_weight, rotate
from .settings import QuantizationSettings
from .timing import Shape, Timing

FEWEST_TOKENS = 17
"""Layers with fewer tokens (time and size embeddings: one per image) are left alone: int8 products on GPUs need more,
and there is nothing to gain."""

TEST_TOKENS = 64

Timings = Callable[[Shape], Timing]


@dataclass(frozen=True)
class Layer:
    """One linear layer of a network.

    Attributes:
        name: its path.
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

    def shape(self, rotation: int = 0) -> Shape:
        """Return its work for the timer."""
        return Shape(self.tokens or 4096, self.inputs, self.outputs, rotation)


@dataclass(frozen=True)
class Verdict:
    """What was decided for a layer.

    Attributes:
        layer: which.
        weight: the int8 weight, or None if it stays in floating point.
        reason: why it stays; empty if it is quantised.
        error: relative L2 error of its output, where that was measured.
        timing: where that was measured.
    """

    layer: Layer
    weight: Int8Weight | None = None
    reason: str = ""
    error: float | None = None
    timing: Timing | None = None


class Tokens:
    """What a layer is given: captured from a real forward pass, or random numbers of the usual distribution."""

    def __init__(self, captured: dict[str, Tensor] | None = None) -> None:
        self.captured = captured or {}

    def of(self, layer: Layer) -> Tensor:
        """Return tokens ``[some, inputs]`` in float32."""
        found = self.captured.get(layer.name)
        if found is not None:
            return found.float()
        generator = torch.Generator().manual_seed(layer.inputs)
        x = torch.randn(TEST_TOKENS, layer.inputs, generator=generator)
        if is_gated_output(layer.name):
            x *= torch.nn.functional.gelu(torch.randn(TEST_TOKENS, layer.inputs, generator=generator))
        return x


def is_gated_output(name: str) -> bool:
    """Return whether a layer follows an activation (GEGLU, GELU, SwiGLU), whose outputs have long tails."""
    return name.endswith(("ff.net.2", "mlp.2", "mlp.fc2", "mlp.c_proj", ".w2", "linear2", "ffn.2", "ff_context.net.2"))


def output_error(weight: Tensor, quantized: Int8Weight, x: Tensor) -> float:
    """Return the relative L2 error of a layer's output for the tokens ``x``; all in float32 on one device."""
    tokens = rotate(x, quantized.rotation) if quantized.rotation else x
    values, scale = quantize_rows(tokens)
    result = ((values.float() * scale) @ quantized.values.float().t()) * quantized.scale.reshape(1, -1)
    expected = x @ weight.t()
    norm = expected.norm()
    return float((result - expected).norm() / norm) if norm > 0 else 0.0


class Chooser:
    """Decides layer by layer.

    Args:
        settings: of Quantize int8.
        timings: gives the times of a shape; None where speed does not matter (weight only).
        tokens: what the layers are given.
        device: where to compute.
    """

    def __init__(
        self,
        settings: QuantizationSettings,
        timings: Timings | None,
        tokens: Tokens,
        device: torch.device,
    ) -> None:
        self.settings, self.timings, self.tokens, self.device = settings, timings, tokens, device

    def decide(self, layer: Layer, weight: Callable[[], Tensor]) -> Verdict:
        """Return what happens to ``layer``, whose ``weight`` ``[out, in]`` is read only if it is needed."""
        settings = self.settings
        if settings.is_excluded(layer.name):
            return Verdict(layer, reason="excluded by name")
        if layer.protected:
            return Verdict(layer, reason=layer.protected)
        if settings.mode == "weight_only":
            return self._try(layer, weight().to(self.device).float(), 0, None)
        if layer.tokens is not None and layer.tokens < FEWEST_TOKENS:
            return Verdict(layer, reason=f"fewer than {FEWEST_TOKENS} tokens")
        assert self.timings is not None
        limits = settings.limits
        plain = self.timings(layer.shape())
        if settings.is_included(layer.name):
            return self._try(layer, weight().to(self.device).float(), 0, plain)
        if plain.speedup < limits.min_speedup:
            return Verdict(layer, reason="int8 is not quicker for its size", timing=plain)
        values = weight().to(self.device).float()
        first = self._try(layer, values, 0, plain)
        if first.error is not None and first.error <= limits.max_error:
            return first
        for group in self._rotations(layer):
            timing = self.timings(layer.shape(group))
            if timing.speedup < limits.min_speedup:
                continue
            rotated = self._try(layer, values, group, timing)
            if rotated.error is not None and rotated.error <= limits.max_error:
                return rotated
        reason = f"its error would be above {limits.max_error:.1%}"
        return Verdict(layer, reason=reason, error=first.error, timing=plain)

    def _rotations(self, layer: Layer) -> tuple[int, ...]:
        if self.settings.rotation == "off":
            return ()
        return tuple(group for group in ROTATION_GROUPS if layer.inputs % group == 0)

    def _try(self, layer: Layer, values: Tensor, rotation: int, timing: Timing | None) -> Verdict:
        quantized = quantize_weight(values, rotation)
        x = self.tokens.of(layer).to(self.device)
        if self.settings.mode == "weight_only":
            restored = quantized.values.float() * quantized.scale
            error = float((x @ (restored - values).t()).norm() / (x @ values.t()).norm().clamp(min=1e-30))
        else:
            error = output_error(values, quantized, x)
        return Verdict(layer, weight=quantized, error=error, timing=timing)


@dataclass(frozen=True)
class Decisions:
    """The verdicts on all layers of a network."""

    verdicts: tuple[Verdict, ...]

    @cached_property
    def quantized(self) -> dict[str, Verdict]:
        """Those in int8, by name."""
        return {verdict.layer.name: verdict for verdict in self.verdicts if verdict.weight is not None}

    @property
    def kept(self) -> list[Verdict]:
        """Those that stay."""
        return [verdict for verdict in self.verdicts if verdict.weight is None]

    @property
    def bytes_before(self) -> int:
        """Bytes of all linear weights now."""
        return sum(verdict.layer.nbytes for verdict in self.verdicts)

    @property
    def bytes_after(self) -> int:
        """Bytes of all linear weights afterwards."""
        return sum(v.layer.nbytes if v.weight is None else v.weight.nbytes for v in self.verdicts)

    def seconds(self) -> Timing | None:
        """Return the times of the quantised layers together, where they were measured."""
        timings = [v.timing for v in self.quantized.values() if v.timing is not None]
        if not timings:
            return None
        return Timing(sum(t.floating for t in timings), sum(t.int8 for t in timings))

    def worst(self) -> Verdict | None:
        """Return the quantised layer with the largest error."""
        found = [verdict for verdict in self.quantized.values() if verdict.error is not None]
        return max(found, key=lambda verdict: verdict.error or 0.0, default=None)
