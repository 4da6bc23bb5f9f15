"""Fuse QKV, whatever the host: which projections are computed together, when, why not, and how that is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from torch.nn import Module

from ..core.activity import Activity, Summary
from ..core.errors import UnsupportedModel
from ..core.phrases import phrase
from ..core.technique import QKV_FUSION, Policy
from ..models.families import AttentionLayer
from .projections import ALL, KEYS_AND_VALUES, FusedProjections

Group = TypeVar("Group", bound=FusedProjections)


class QKVFusion(Policy):
    """Compute query, key and value of each attention layer in one matrix multiplication.

    ``notes``: what else is to be said. ``reach``: attention layers reached, by what it computes together there.
    """

    kind = QKV_FUSION
    title = "Fuse QKV"

    def __init__(self, groups: Iterable[FusedProjections], notes: Sequence[str]) -> None:
        self.reach = Counter(group.names[0] for group in groups)
        self.notes = notes

    def clauses(self) -> tuple[str, ...]:
        reached = [
            phrase("{what} of {count} attention layers", what=what, count=self.reach[what])
            for what in (ALL, KEYS_AND_VALUES)
            if self.reach[what]
        ]
        shared = ("weights are shared, not copied",) if reached else ()
        return *reached, *shared, *self.notes

    def summarize(self, activity: Activity) -> Summary:
        details, fallbacks = activity.fallback_lines(), activity.fallback_count
        calls = {what: activity.used.get(what, 0) for what in (ALL, KEYS_AND_VALUES)}
        counts = {"q_k_v": calls[ALL], "k_v": calls[KEYS_AND_VALUES], "fallbacks": fallbacks}
        if not activity.used:
            none = phrase("no attention layer was called")
            why = phrase("every layer was left alone") if fallbacks or not self.reach else none
            return Summary("inactive", phrase("not active: {why}", why=why), counts, details)
        what, count = max(calls.items(), key=lambda item: item[1])
        headline = phrase(
            "one multiplication for {what} in {count} attention {count|call|calls}", what=what, count=count
        )
        return Summary("partly" if fallbacks else "active", headline, counts, details, neutral=True)


def groups_in(attention: Module, known: AttentionLayer, kind: type[Group]) -> Iterator[Group]:
    """Yield what can be computed together in an attention layer; PEFT's layers stand for those that they wrap."""
    for names in known.projections:
        found = [layer for name in names if (layer := getattr(attention, name, None)) is not None]
        layers = [layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer for layer in found]
        if len(layers) < 2 or not all(hasattr(layer, "in_features") for layer in layers):
            continue
        if layers[0].in_features != layers[1].in_features:
            del layers[0]  # attention to the text: the query can never read the same
        # Keys and values read the same tokens in every call, unless values can be given tokens of their own.
        varies = len(layers) == 3 or len(known.inputs) == 3
        yield kind(attention, layers, known.inputs if varies else ())


def nothing_to_fuse(model: str, network: Module, reasons: Iterable[str], remedy: str) -> UnsupportedModel:
    """Return the error for a model without anything that can be fused; ``reasons`` are those of its layers."""
    by_design = (name for name, _ in network.named_modules() if name.endswith(("qkv", "qkv_proj")))
    layer = next(by_design, None)  # Flux, SD3, ...
    design = "it is not among the models it knows" if layer is None else f"it computes them together already ({layer})"
    given = list(dict.fromkeys(reasons)) or [design]
    problem = f"Fuse QKV cannot fuse the query, key and value projections of {model}: {'; '.join(given)}."
    return UnsupportedModel(problem, remedy, ", ".join(given))
