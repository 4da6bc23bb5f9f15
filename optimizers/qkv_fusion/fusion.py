"""Fuse QKV, whatever the host: which projections are computed together, when, why not, and how that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import Module

from ...core.activity import Activity, Summary
from ...core.errors import UnsupportedModel
from ...core.order import QKV_FUSION
from ...core.technique import Technique
from ..families.family import AttentionLayer
from .projections import SEPARATE, FusedProjections, Join
from .rows import join_rows, refuse_rows

ALL, KEYS_AND_VALUES = "q, k and v", "k and v"
OTHER_INPUTS = "other code gives keys and values tokens of their own"

class QKVFusion(Technique):
    """Compute query, key and value of each attention layer in one matrix multiplication.

    Attributes:
        reach: how many attention layers it reaches, by what it computes together there.
        notes: what else is said about it.
    """

    kind = QKV_FUSION
    title = "Fuse QKV"
    reach: Mapping[str, int]
    notes: Sequence[str] = ()

    def describe(self) -> str:
        """Return how many layers it reaches, and what it costs."""
        parts = [f"{what} of {count} attention layers" for what, count in self.reach.items() if count]
        return "; ".join([", ".join(parts), "weights are shared, not copied", *self.notes])

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``one multiplication for q, k and v in 14 and for k and v in 14 attention calls``."""
        details, fallbacks = activity.fallback_lines(), activity.fallback_count
        calls = {what: activity.used.get(what, 0) for what in (ALL, KEYS_AND_VALUES)}
        counts = {"q_k_v": calls[ALL], "k_v": calls[KEYS_AND_VALUES], "fallbacks": fallbacks}
        if not activity.used:
            why = "every layer was left alone" if fallbacks else "no attention layer was called"
            return Summary("inactive", f"not active: {why}", counts, details)
        parts = " and for ".join(f"{what} in {count}" for what, count in calls.items() if count)
        state = "partly" if fallbacks else "active"
        return Summary(state, f"one multiplication for {parts} attention calls", counts, details)


def reach_of(groups: Iterable[Group]) -> dict[str, int]:
    """Return how many groups there are, by what they compute together."""
    reach = {ALL: 0, KEYS_AND_VALUES: 0}
    for group in groups:
        reach[group.fused.names[0]] += 1
    return reach


Refuse = Callable[[Sequence[Module]], str | None]
"""Says why layers cannot compute together with the weights they have, or None."""


class Group:
    """Projections of one attention layer that can be computed together.

    Args:
        attention: the layer they belong to.
        layers: two or three linear layers, query first if it is among them.
        inputs: names of the first arguments of ``attention.forward`` where they decide what the layers read, as in
            ``AttentionLayer``; else empty.
        watched: as in ``FusedProjections``.
    """

    def __init__(
        self, attention: Module, layers: Sequence[Module], inputs: tuple[str, ...] = (), watched: Sequence[str] = ()
    ) -> None:
        self.attention = attention
        self.inputs = inputs
        places = (ALL, KEYS_AND_VALUES)[-len(layers) + 1 :]
        self.fused = FusedProjections(layers, places, plan=None if inputs else 0, watched=watched)
        self.forward = partial(_foresee, self)  # one object for life, as the projections' functions
        self.inner: Callable[..., Any] = attention.forward
        self._refused: tuple[list[object], str] | None = None

    def prepare(self, refuse: Refuse, join: Join = join_rows) -> str | None:
        """Join the weights unless they are joined already; return why they cannot be, or None."""
        if self.fused.ready:
            return None
        now = self.fused.state()
        if self._refused is None or self._refused[0] != now:
            reason = refuse(self.fused.layers)
            self._refused = None if reason is None else (now, reason)
        if self._refused is not None:
            return self._refused[1]
        self.fused.build(join)
        return None

    def put_in(
        self, put: Callable[[Any, str, Callable[..., Any]], None], current: Callable[[Any, str], Any] = getattr
    ) -> None:
        """Take the place of the layers' ``forward``, and of the attention's where it decides what they read.

        Args:
            put: ``put(owner, name, function)`` lets ``owner.name`` be ``function``, until it is undone.
            current: returns what ``put`` would take the place of.
        """
        for layer, function in zip(self.fused.layers, self.fused.functions, strict=True):
            put(layer, "forward", function)
        if self.inputs:
            self.inner = current(self.attention, "forward")
            put(self.attention, "forward", self.forward)


def _foresee(group: Group, *args: Any, **kwargs: Any) -> Any:
    """Tell the projections which of them will read the same tokens, and run the attention layer."""
    fused, given = group.fused, {**dict(zip(group.inputs, args, strict=False)), **kwargs}
    tokens, context, *values = [given.get(name) for name in group.inputs]
    context = tokens if context is None else context
    if any(value is not None and value is not context for value in values):
        fused.plan = SEPARATE
        fused.activity.fall_back(OTHER_INPUTS)
    else:
        fused.plan = 0 if context is tokens else len(fused.layers) - 2
    result = group.inner(*args, **kwargs)
    fused.plan = None
    return result


def groups_in(attention: Module, known: AttentionLayer, watched: Sequence[str] = ()) -> Iterator[Group]:
    """Yield what can be computed together in an attention layer.

    Layers of PEFT stand for those that they wrap: they call them, and add their own part.
    """
    for projections in known.projections:
        found = [layer for name in projections if (layer := getattr(attention, name, None)) is not None]
        layers = [layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer for layer in found]
        if len(layers) < 2 or not all(hasattr(layer, "in_features") for layer in layers):
            continue
        if layers[0].in_features != layers[1].in_features:
            layers = layers[1:]  # attention to the text: the query can never read the same
        # Keys and values read the same tokens in every call, unless values can be given tokens of their own.
        varies = len(layers) == 3 or len(known.inputs) == 3
        yield Group(attention, layers, known.inputs if varies else (), watched)


def refuse_layers(layers: Sequence[Module], refuse_weights: Callable[[Sequence[Tensor]], str | None]) -> str | None:
    """Return why layers cannot compute together, or None if their weights and biases can be one tensor each."""
    biases = [bias for layer in layers if (bias := layer._parameters.get("bias")) is not None]
    if len(biases) not in (0, len(layers)):
        return "some of its projections have a bias and others do not"
    reason = refuse_weights([weight for layer in layers if (weight := layer._parameters["weight"]) is not None])
    return reason if reason is not None or not biases else refuse_rows(biases)


def nothing_to_fuse(model: str, network: Module, reasons: Iterable[str], remedy: str) -> UnsupportedModel:
    """Return the error for a model without anything that can be fused; ``reasons`` are those of its layers."""
    by_design = (name for name, _ in network.named_modules() if name.rpartition(".")[2] in ("qkv", "to_qkv"))
    layer = next(by_design, None)  # Flux, SD3, ...
    why = "it is not among the models it knows" if layer is None else f"it computes them together already ({layer})"
    why = "; ".join(dict.fromkeys(reasons)) or why
    return UnsupportedModel(f"Fuse QKV cannot fuse the query, key and value projections of {model}: {why}.", remedy)
