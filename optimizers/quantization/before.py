"""What Quantize int8 says before a run: of layers as far as they are chosen without their weights."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.activity import Summary
from ...core.phrases import phrase
from .layers import LayerChoice, LayerChoices
from .policy import UNIT, QuantizationPolicy
from .settings import QuantizationSettings


def foretold(settings: QuantizationSettings, choices: Sequence[LayerChoice], model: str) -> Summary:
    """Return what a run will do at most; `NothingGained` as after it where no layer is left.

    ``choices``: of `Chooser.before`, for all layers of a network; ``model``: its name in the sentence.
    """
    likely = [choice for choice in choices if not choice.reason]
    if not likely:
        QuantizationPolicy(settings, LayerChoices(tuple(choices))).require_gain(model)
    counts: dict[str, str | float] = {"count": len(likely), "total": len(choices), "unit": UNIT}
    timings = [choice.timing for choice in likely if choice.timing is not None]
    if settings.mode == "weight_only":
        headline = phrase("{count} of {total} {unit} in int8, to save memory: none gets faster", **counts)
    elif len(timings) < len(likely):
        headline = phrase("up to {count} of {total} {unit} in int8: the first run measures which gain", **counts)
    else:
        headline = phrase(
            "up to {count} of {total} {unit} in int8: {speedup:.2f} x in those, as measured here",
            **counts,
            speedup=sum(one.floating for one in timings) / sum(one.int8 for one in timings),
        )
    return Summary("waiting", headline)
