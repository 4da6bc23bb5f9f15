"""Fuse QKV, whatever the host: which projections are computed together, when, why not, and how that is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.nn import Module

from ..core.activity import Activity, Summary
from ..core.errors import UnsupportedModel
from ..core.phrases import phrase
from ..core.technique import QKV_FUSION, Policy
from ..models.families import AttentionLayer
from .projections import TOGETHER, FusedProjections

SLOWER = {"cpu": phrase("on a processor three products take less time than a wide product")}
"""Why attention layers on a type of devices are left alone: a step took 1.04 times as long (docs/results.md)."""


class QKVFusion(Policy):
    """Compute query, key and value of ``reached`` attention layers in one matrix product; ``notes``: as of a policy."""

    kind = QKV_FUSION
    title = "Fuse QKV"

    def __init__(self, reached: int, notes: Sequence[str]) -> None:
        self.reached, self.notes = reached, notes

    def clauses(self) -> tuple[str, ...]:
        if not self.reached:
            return tuple(self.notes)
        headline = phrase("{what} of {count} attention layers", what=TOGETHER, count=self.reached)
        return headline, "weights are shared, not copied", *self.notes

    def summarize(self, activity: Activity) -> Summary:
        details, fallbacks, calls = activity.fallback_lines(), activity.fallback_count, activity.use_count
        counts = {"q_k_v": calls, "fallbacks": fallbacks}
        if not calls:
            none = phrase("no attention layer was called with the same tokens for all three")
            alone = phrase("every layer was left alone") if fallbacks or not self.reached else none
            why = next(iter(activity.fallbacks)) if len(activity.fallbacks) == 1 else alone
            return Summary("inactive", phrase("not active: {why}", why=why), counts, details)
        headline = phrase(
            "one multiplication for {what} in {count} attention {count|call|calls}", what=TOGETHER, count=calls
        )
        return Summary("partly" if fallbacks else "active", headline, counts, details, neutral=True)


def groups_in(attention: Module, known: AttentionLayer) -> Iterator[FusedProjections]:
    """Yield what can be computed together in an attention layer; PEFT's layers stand for those that they wrap."""
    for names in known.projections:
        found: list[Any] = [getattr(attention, name, None) for name in names]
        layers = [layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer for layer in found]
        widths = {getattr(layer, "in_features", None) for layer in layers}
        if None not in widths and len(widths) == 1:  # attention to a text mostly reads channels of another number
            yield FusedProjections(attention, layers, known.inputs)


def nothing_to_fuse(model: str, network: Module, reasons: Iterable[str], remedy: str) -> UnsupportedModel:
    """Return the error for a model without anything that can be fused; ``reasons`` are those of its layers."""
    by_design = (name for name, _ in network.named_modules() if name.endswith(("qkv", "qkv_proj")))
    layer = next(by_design, None)  # Flux, SD3, ...
    design = "it is not among the models it knows" if layer is None else f"it computes them together already ({layer})"
    given = list(dict.fromkeys(reasons)) or [design]
    problem = f"Fuse QKV cannot fuse the query, key and value projections of {model}: {'; '.join(given)}."
    return UnsupportedModel(problem, remedy, ", ".join(given))
