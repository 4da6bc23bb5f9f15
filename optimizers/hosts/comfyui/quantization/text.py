"""The words of Quantize int8: one line for the node, some for the report, a table of all layers."""

from __future__ import annotations

from collections import Counter

from ....quantization.kernels import Kernel
from ....quantization.layers import Decisions, Verdict
from ....quantization.settings import QuantizationSettings


def megabytes(size: int) -> str:
    """Return e.g. ``123.4 MB``."""
    return f"{size / 1e6:.1f} MB"


def one_line(settings: QuantizationSettings, decisions: Decisions, kernel: Kernel | None) -> str:
    """Return e.g. ``balanced: 96 of 128 linear layers in int8, 512.0 MB -> 300.0 MB; kernel: ...``."""
    if not decisions.verdicts:
        return f"the file's own int8 layers; kernel: {kernel.name if kernel else 'full precision'}"
    quantized = len(decisions.quantized)
    text = (
        f"{settings.describe()}: {quantized} of {len(decisions.verdicts)} linear layers in int8, "
        f"{megabytes(decisions.bytes_before)} -> {megabytes(decisions.bytes_after)}"
    )
    if kernel is None:
        return f"{text}; computed in full precision"
    text += f"; kernel: {kernel.name}"
    seconds = decisions.seconds()
    if seconds is None:
        return text
    if seconds.speedup < 1:
        return (
            f"{text}, slower here than in full precision: {seconds.speedup:.2f} x in those layers as measured "
            "(mode weight_only saves the same memory)"
        )
    return f"{text}, {seconds.speedup:.2f} x in those layers as measured here"


def decision_lines(decisions: Decisions) -> tuple[str, ...]:
    """Return how many layers were kept for each reason, and the quantised layer with the largest error."""
    reasons = Counter(verdict.reason for verdict in decisions.kept)
    lines = [f"kept {count} layers in full precision: {reason}" for reason, count in reasons.most_common()]
    worst = decisions.worst()
    if worst is not None:
        lines.append(f"largest error of a layer's output: {worst.error:.2%} ({worst.layer.name})")
    return tuple(lines)


def table(decisions: Decisions) -> str:
    """Return one line for each layer: shape, decision, error and speed."""
    return "\n".join(_row(verdict) for verdict in decisions.verdicts)


def _row(verdict: Verdict) -> str:
    layer = verdict.layer
    tokens = layer.tokens if layer.tokens is not None else "?"
    parts = [f"{layer.name}: {tokens} x {layer.inputs} -> {layer.outputs}"]
    if verdict.weight is None:
        parts.append(f"kept ({verdict.reason})")
    else:
        rotation = f", rotated by {verdict.weight.rotation}" if verdict.weight.rotation else ""
        parts.append(f"int8{rotation}, {megabytes(layer.nbytes)} -> {megabytes(verdict.weight.nbytes)}")
    if verdict.error is not None:
        parts.append(f"error {verdict.error:.2%}")
    if verdict.timing is not None:
        parts.append(f"{verdict.timing.speedup:.2f} x")
    return "; ".join(parts)
