"""Quantize int8 without a host: which kernel computes, which layers are chosen, and what a person reads about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from ...core.activity import Activity, Summary
from ...core.errors import NothingGained
from ...core.phrases import Phrase, joined, phrase, sentence, translatable
from ...core.technique import INT8, Policy
from .kernels import Kernel, Kitchen, SafeKernel, available
from .layers import Chooser, Decision, Decisions, Layer, Measure
from .settings import QuantizationSettings
from .timing import Shape, Timings

Weight = Callable[[], Tensor]
"""Reads a layer's weight ``[out, in]``."""

_TYPICAL = Shape(4096, 1280, 1280)
"""The shape by which the kernel is chosen where no layer may be quantised."""


def largest_shape(layers: Iterable[Layer]) -> Shape:
    """Return the shape that most work goes into, of the layers that may be quantised."""
    shapes = [layer.shape() for layer in layers if not layer.protected and layer.has_enough_tokens]
    return max(shapes, key=lambda shape: shape.tokens * shape.inputs * shape.outputs, default=_TYPICAL)


def choose_kernel(layers: Iterable[Layer], timings: Timings) -> tuple[Kernel, tuple[str, ...]]:
    """Return the kernel that is fastest for the largest shape, lines on those not used, and how they were timed."""
    kernels, reasons = available(timings.device)
    kernel, failures = timings.fastest(kernels, largest_shape(layers))
    refused = {**reasons, **failures}.items()
    lines: list[str] = [phrase("not used here: {name}: {reason}", name=name, reason=reason) for name, reason in refused]
    if any(isinstance(found, Kitchen) for found in kernels):
        slow = Kitchen().slow_because(timings.device)
        lines += [phrase("comfy-kitchen without its fast kernels: {reason}", reason=slow)] if slow else []
    if timings.device.type == "cpu":
        lines.append(translatable("timed on one core of the processor, where other programs disturb least"))
    return kernel, tuple(lines)


def decide(
    layers: Iterable[tuple[Layer, Weight]],
    settings: QuantizationSettings,
    timings: Timings,
    samples: Mapping[str, Tensor],
    device: torch.device,
    note: str = "",
    each: Callable[[Decision], Decision] = lambda decision: decision,
) -> Decisions:
    """Choose the kernel and decide layer by layer: beside the int8 weights, one float32 layer is all it needs.

    Args:
        layers: each with its weight, which is read only where it is needed.
        settings: what was asked for.
        timings: of the device that the model computes on; saved at the end. Not asked for weight only.
        samples: tokens that layers were given in a real run, by the layer's name.
        device: where weights are quantised.
        note: where the token counts come from.
        each: is given each decision, and returns it with the weight where it is to stay.
    """
    layers = list(layers)
    kernel: Kernel | None = None
    notes: tuple[str, ...] = ()
    measure: Measure | None = None
    if settings.mode == "int8":
        kernel, notes = choose_kernel((layer for layer, _ in layers), timings)
        notes = (*notes, note) if note else notes
        measure = partial(timings.time, kernel)
    chooser = Chooser(settings, measure, samples, device)
    try:
        with torch.inference_mode():
            decisions = tuple(each(chooser.decide(layer, weight)) for layer, weight in layers)
    finally:
        timings.save()
    return Decisions(decisions, kernel, notes)


class QuantizationPolicy(Policy):
    """What Quantize int8 decides and says, whatever host the model is in. No decisions: the file was in int8 already.

    Attributes:
        kernel: what computes the products, with what to do when it fails; None for weight only.
        unit: what a person calls the things that are counted.
        shrinks: whether the floating point weights are given up.
    """

    kind = INT8
    title = "Quantize int8"
    unit: ClassVar[str] = translatable("linear layers")
    shrinks: ClassVar[bool] = True

    def __init__(self, settings: QuantizationSettings, decisions: Decisions) -> None:
        self.settings = settings
        self.decided(decisions)

    def decided(self, decisions: Decisions) -> None:
        """Take over what was decided."""
        self.decisions = decisions
        self.kernel = SafeKernel(decisions.kernel) if decisions.kernel is not None else None

    def clauses(self) -> tuple[str, ...]:
        """Return e.g. ``balanced: 96 of 128 linear layers in int8, 512.0 MB -> 300.0 MB`` and ``kernel: ...``."""
        decisions = self.decisions
        whole = translatable("computed in full precision")
        by = [whole if self.kernel is None else phrase("kernel: {name}", name=self.kernel.kernel.name)]
        if not decisions.all:
            return translatable("the file's own int8 layers"), by[0]
        text = [
            phrase(
                "{settings}: {count} of {total} {unit} in int8",
                settings=self.settings.describe(),
                count=len(decisions.quantized),
                total=len(decisions.all),
                unit=self.unit,
            )
        ]
        if self.shrinks:
            text.append(joined(" -> ", [megabytes(decisions.bytes_before), megabytes(decisions.bytes_after)]))
        seconds = decisions.seconds()
        if seconds is not None and seconds.speedup >= 1:
            by.append(phrase("{speedup:.2f} x in those layers as measured here", speedup=seconds.speedup))
        elif seconds is not None:
            slower = phrase(
                "slower here than in full precision: {speedup:.2f} x in those layers as measured",
                speedup=seconds.speedup,
            )
            advice = translatable("(mode weight_only saves the same memory)")
            by.append(joined(" ", [slower, advice]) if self.shrinks else slower)
        return joined(", ", text), joined(", ", by)

    def details(self) -> tuple[str, ...]:
        """Return why other kernels are not used, how many layers were kept for each reason, and the largest error."""
        reasons = Counter(decision.reason for decision in self.decisions.kept)
        lines: list[str] = [
            phrase("kept {count} {count|layer|layers} in full precision: {reason}", count=count, reason=reason)
            for reason, count in reasons.most_common()
        ]
        if self.decisions.seconds() is not None:
            lines.append(translatable("the layers were timed without torch.compile, whether it follows or not"))
            lines.append(
                translatable("these times are kept: the same layers are chosen again, however busy the machine is then")
            )
        worst = self.decisions.worst()
        if worst is not None:
            lines.append(
                phrase(
                    "largest error of a layer's output: {error:.2%} ({layer})",
                    error=worst.error or 0.0,
                    layer=worst.layer.name,
                )
            )
        return (*self.decisions.notes, *lines)

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``active in 96 linear layers over 20 model calls``."""
        details = (*activity.fallback_lines(), *self.details())
        calls, fallbacks = activity.model_calls, activity.fallback_count
        count = round(activity.use_count / max(1, calls))
        counts = {"layers": count, "model_calls": calls, "fallbacks": fallbacks}
        if not activity.use_count:
            none = translatable("the model has no int8 layers")
            why = translatable("all its layers fell back") if fallbacks else none
            return Summary("inactive", phrase("not active: {why}", why=why), counts, details)
        headline = phrase(
            "active in {count} {unit} over {calls} model {calls|call|calls}", count=count, unit=self.unit, calls=calls
        )
        return Summary("partly" if fallbacks else "active", headline, counts, details)

    def require_gain(self, model: str) -> None:
        """Check that at least one layer was chosen; ``model`` is what a person calls the model.

        Raises:
            NothingGained: if none was, with the numbers.
        """
        decisions = self.decisions
        if decisions.quantized:
            return
        if any(decision.timing is not None for decision in decisions.all):
            problem = phrase(
                "None of the {count} {unit} of this {model} gains from int8 here: {why}.",
                count=len(decisions.all),
                unit=self.unit,
                model=model,
                why=joined("; ", self._why_none()),
            )
            notes = (phrase("{note}.", note=sentence(note)) for note in decisions.notes[:-1])
            problem = joined(" ", (problem, *notes))
            brief = translatable("no layer is quick and exact enough in int8")
        else:
            settings = self.settings.describe()
            problem = phrase(
                "The settings ({settings}) leave no layer of this {model} to quantise.", settings=settings, model=model
            )
            brief = translatable("the settings leave no layer to quantise")
        size = megabytes(sum(d.layer.nbytes for d in decisions.all if not d.layer.protected))
        remedy: str = translatable("Leave it out, or name layers with include.")
        if self.shrinks:
            remedy = phrase(
                "Choose mode weight_only to save memory instead (about half of {size}), or name layers with include.",
                size=size,
            )
        raise NothingGained(problem, remedy, brief)

    def _why_none(self) -> Iterator[Phrase]:
        """Yield why no layer was chosen, with how many layers it is true for."""
        wanted = self.settings.thresholds.min_speedup
        slow = [d.timing.speedup for d in self.decisions.all if d.timing is not None and d.timing.speedup < wanted]
        if slow:
            yield phrase(
                "{count} would run at {best:.2f} x at best, and it takes {wanted:g} x",
                count=len(slow),
                best=max(slow),
                wanted=wanted,
            )
        others = Counter(d.reason for d in self.decisions.all if d.timing is None or d.timing.speedup >= wanted)
        for reason, count in others.most_common():
            yield phrase("{count} stay as they are ({reason})", count=count, reason=reason)

    def table(self) -> str:
        """Return one line for each layer: shape, decision, error and speed."""
        return "\n".join(_row(decision) for decision in self.decisions.all)


def megabytes(size: int) -> str:
    """Return e.g. ``123.4 MB``."""
    return phrase("{size:.1f} MB", size=size / 1e6)


def _row(decision: Decision) -> str:
    layer = decision.layer
    tokens = layer.tokens if layer.tokens is not None else "?"
    parts = [f"{layer.name}: {tokens} x {layer.inputs} -> {layer.outputs}"]
    if decision.weight is None:
        parts.append(f"kept ({decision.reason})")
    else:
        rotation = f", rotated by {decision.weight.rotation}" if decision.weight.rotation else ""
        parts.append(f"int8{rotation}, {megabytes(layer.nbytes)} -> {megabytes(decision.weight.nbytes)}")
    if decision.error is not None:
        parts.append(f"error {decision.error:.2%}")
    if decision.timing is not None:
        parts.append(f"{decision.timing.speedup:.2f} x")
    return "; ".join(parts)
