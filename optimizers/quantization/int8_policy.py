"""The words of Quantize int8, the same for all hosts."""

from __future__ import annotations

from collections import Counter

from ..core.activity import Activity, Summary
from ..core.errors import NothingGained
from ..core.phrases import phrase
from ..core.technique import INT8, Policy
from .int8_settings import QuantizationSettings
from .layer_choice import LayerChoice, LayerChoices

UNIT = phrase("linear layers")
LAYERS = "layers"
"""The place at which a host counts each int8 layer that has computed."""


class QuantizationPolicy(Policy):
    """The report of Quantize int8, which has ``choices`` for each layer."""

    kind = INT8
    title = "Quantize int8"

    def __init__(self, settings: QuantizationSettings, choices: LayerChoices) -> None:
        self.settings, self.choices = settings, choices

    def clauses(self) -> tuple[str, ...]:
        """Return e.g. ``balanced: 96 of 128 linear layers in int8`` and ``512.0 MB -> 300.0 MB, kernel: ...``."""
        choices = self.choices
        by = f"kernel: {choices.kernel}" if choices.kernel else "computed in full precision"
        headline = phrase(
            "{settings}: {count} of {total} {unit} in int8",
            settings=self.settings.describe(),
            count=len(choices.quantized),
            total=len(choices.all),
            unit=UNIT,
        )
        by = f"{_megabytes(choices.bytes_before)} -> {_megabytes(choices.bytes_after)}, {by}"
        seconds = choices.seconds()
        if seconds is not None and seconds.speedup >= 1:
            by += f", {seconds.speedup:.2f} x in those layers as measured here"
        elif seconds is not None:
            by += f", slower here than in full precision: {seconds.speedup:.2f} x in those layers as measured"
            by += " (mode weight_only saves the same memory)"
        return headline, by

    def details(self) -> tuple[str, ...]:
        """Return notes, how many layers were kept for each reason, and the largest error."""
        reasons = Counter(choice.reason for choice in self.choices.all if choice.weight is None)
        kept = "kept {count} layer{s} in full precision: {reason}".format
        lines = [kept(count=n, s="s" * (n > 1), reason=reason) for reason, n in reasons.most_common()]
        worst = self.choices.worst()
        if worst is not None:
            lines.append(f"largest error of a layer's output: {worst.error:.2%} ({worst.layer.name})")
        return (*self.choices.notes, *lines)

    def summarize(self, activity: Activity) -> Summary:
        details = (*activity.fallback_lines(), *self.details())
        calls, fallbacks = activity.model_calls, activity.fallback_count
        count = round(activity.use_count / max(1, calls))
        counts = {"layers": count, "model_calls": calls, "fallbacks": fallbacks}
        if not activity.use_count:
            none = phrase("none of its int8 layers was called")
            why = phrase("all its layers fell back") if fallbacks else none
            return Summary("inactive", phrase("not active: {why}", why=why), counts, details)
        headline = phrase(
            "active in {count} {unit} over {calls} model {calls|call|calls}", count=count, unit=UNIT, calls=calls
        )
        return Summary("partly" if fallbacks else "active", headline, counts, details)

    def require_gain(self, model: str) -> None:
        """Raise `NothingGained` with the numbers if no layer was chosen; ``model`` is its name in the sentence."""
        choices = self.choices
        if choices.quantized:
            return
        if any(choice.timing is not None for choice in choices.all):
            best = max(choice.timing.speedup for choice in choices.all if choice.timing is not None)
            wanted = self.settings.thresholds.min_speedup
            problem = f"None of the {len(choices.all)} {UNIT} of this {model} gains from int8 here: the best is "
            problem += f"{best:.2f} x as fast, and a gain starts at {wanted:g} x: {'; '.join(self.details())}."
            brief = phrase("no layer is quick and exact enough in int8")
        else:
            problem = f"The settings ({self.settings.describe()}) leave no layer of this {model} to quantise."
            brief = phrase("the settings leave no layer to quantise")
        size = _megabytes(sum(choice.layer.nbytes for choice in choices.all if not choice.layer.protected))
        remedy = f"Choose mode weight_only to save memory instead (about half of {size}), or name layers with include."
        raise NothingGained(problem, remedy, brief)

    def table(self) -> str:
        return "\n".join(map(_row, self.choices.all))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _row(choice: LayerChoice) -> str:
    layer = choice.layer
    parts = [f"{layer.name}: {layer.inputs} -> {layer.outputs}"]
    if choice.weight is None:
        parts.append(f"kept ({choice.reason})")
    else:
        parts.append(f"int8, {_megabytes(layer.nbytes)} -> {_megabytes(choice.weight.nbytes)}")
    if choice.error is not None:
        parts.append(f"error {choice.error:.2%}")
    if choice.timing is not None:
        parts.append(f"{choice.timing.speedup:.2f} x")
    return "; ".join(parts)
