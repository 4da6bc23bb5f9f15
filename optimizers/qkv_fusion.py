"""Fuse QKV, whatever the host: query, key and value of one attention layer in one matrix product instead of three.

In calls in which all three read the same tokens the query's layer computes all of them, and keeps the others' results
for the next lines of the layer's own code. One that is then asked for other tokens (a patch gave keys and values of
their own) computes alone. So the result is always that of separate projections.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.functional import linear

from .core.activity import Activity, Summary
from .core.errors import UnsupportedModel
from .core.phrases import phrase
from .core.shadow import computed_by, replacement
from .core.technique import QKV_FUSION, Policy
from .core.weights import foreign
from .models.families import Projections

TOGETHER = "q, k and v"
OTHER_CODE = "other code gives its keys or values separate tokens"
SLOWER = {"cpu": phrase("on a processor three small products are faster than a single wide product")}
"""Why attention layers on a type of devices are left alone: a step took 1.04 times as long (docs/results.md)."""

_OF_OTHERS = re.compile(r"attn2$|cross|_to_(audio|video)_")
"""In the name of an attention layer whose keys are of other tokens, in ComfyUI and diffusers."""


class QKVFusion(Policy):
    """Compute query, key and value of ``reached`` attention layers in one matrix product."""

    kind = QKV_FUSION
    neutral = True
    title = "Fuse QKV"

    def __init__(self, reached: int) -> None:
        self.reached = reached

    def clauses(self) -> tuple[str, ...]:
        headline = phrase("{what} of {count} attention layers", what=TOGETHER, count=self.reached)
        return headline, "weights are shared, not copied"

    def summarize(self, activity: Activity) -> Summary:
        details, fallbacks, calls = activity.fallback_lines(), activity.fallback_count, activity.use_count
        counts = {"q_k_v": calls, "fallbacks": fallbacks}
        if not calls:
            none = phrase("no attention layer was called with the same tokens for query, key and value")
            why = next(iter(activity.fallbacks), none)
            return Summary("inactive", phrase("not active: {why}", why=why), counts, details)
        headline = phrase(
            "one multiplication for {what} in {count} attention {count|call|calls}", what=TOGETHER, count=calls
        )
        return Summary("partly" if fallbacks else "active", headline, counts, details)


def groups_in(
    network: Module, known: Callable[[Module], Projections], others: Sequence[str], counter: Any
) -> Iterator[FusedProjections]:
    """Yield what can be computed together in a network; PEFT's layers stand for those that they wrap.

    ``known`` returns the attributes of a module that are query, key and value; ``others`` and ``counter`` as of
    `FusedProjections`.
    """
    for name, module in network.named_modules():
        for names in () if _OF_OTHERS.search(name.rpartition(".")[2]) else known(module):
            found: list[Any] = [getattr(module, each, None) for each in names]
            layers = [layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer for layer in found]
            widths = {getattr(layer, "in_features", None) for layer in layers}
            if None not in widths and len(widths) == 1:
                yield FusedProjections(module, layers, others, counter)


def nothing_to_fuse(model: str, network: Module, reasons: Iterable[str], remedy: str) -> UnsupportedModel:
    """Return the error for a model without anything that can be fused; ``reasons`` are those of its layers."""
    by_design = (name for name, _ in network.named_modules() if name.endswith(("qkv", "qkv_proj")))
    layer = next(by_design, None)  # Flux, SD3, ...
    design = "this class of model is not supported" if layer is None else f"it computes them together already ({layer})"
    given = list(dict.fromkeys(reasons)) or [design]
    problem = f"Fuse QKV cannot fuse the query, key and value projections of {model}: {'; '.join(given)}."
    return UnsupportedModel(problem, remedy, ", ".join(given))


class FusedProjections:
    """The linear layers of one ``attention`` layer for query, key and value.

    ``others``: arguments by which a call can give it keys and values of other tokens; ``counter``: has the ``activity``
    of the call in which they compute.

    Attributes:
        modules: the layers, and the attention layer where a call must be foreseen.
        functions: what takes the place of the ``forward`` of each, the same for life, so that compiled graphs stay
            valid, and methods, as blocks share compiled code through no others; ``below``: what was there.
    """

    def __init__(self, attention: Module, layers: Sequence[Module], others: Sequence[str], counter: Any) -> None:
        self.attention, self.layers, self._counter = attention, tuple(layers), counter
        taken = inspect.signature(type(attention).forward).parameters
        joint = getattr(attention, "add_k_proj", None) is not None  # which has projections for the other tokens
        self._others = [name for name in others if name in taken and not joint]
        self.modules = (*layers, attention) if self._others else self.layers
        self.functions = (self._query, self._key, self._value, self._foresee)[: len(self.modules)]
        self.below: list[Callable[..., Any]] = [module.forward for module in self.modules]
        self._joined: list[Parameter] = []
        self._refusal = ""
        self._sizes: list[int] = []
        self._places: list[tuple[int, int]] = []
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self._alike = True

    def prepare(self, refusal: str) -> None:
        """Join the weights for the coming call unless they are; ``refusal``: why a host does not want it, if so."""
        self._kept.clear()  # of a call that was broken off in the middle
        self._alike = True
        if refusal or not self._joined or self._places != self._places_now():
            self._joined = []  # lets go of the memory of before first
            self._refusal = refusal or self.why_apart()
            if not self._refusal:
                weights, biases = self._rows()
                self._sizes = list(map(len, weights))
                self._joined = [join_rows(rows) for rows in (weights, biases) if rows]
                self._places = self._places_now()

    def separate(self) -> None:
        """Give each layer memory of its own again, with the values it has now."""
        self._joined = []
        self._kept.clear()
        for tensor in (one for rows in self._rows() for one in rows if not foreign(one)):
            if tensor.untyped_storage().nbytes() > tensor.nbytes:
                with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                    tensor.data = tensor.data.clone()

    def _foresee(self, *args: Any, **kwargs: Any) -> Any:
        """Run the attention layer; given other tokens for its keys or values, its layers compute alone."""
        tokens, others = args[0] if args else None, [kwargs.get(name) for name in self._others]
        self._alike = all(other is None or other is tokens for other in others)
        result = self.below[-1](*args, **kwargs)
        self._alike = True
        return result

    def _query(self, tokens: Tensor) -> Any:
        """Compute the query of ``tokens``, and keep the key and the value of them, where that is right."""
        if not self._alike:
            return self.below[0](tokens)
        if not self._joined:
            self._counter.activity.fall_back(self._refusal)
            return self.below[0](tokens)
        # In the dtype of the tokens, as ComfyUI's layers do where weights are kept in fewer bits.
        joined = [one.to(tokens.dtype) for one in self._joined]
        query, *others = linear(tokens, *joined).split_with_sizes(self._sizes, dim=-1)
        self._kept.update({index: (tokens, other) for index, other in enumerate(others, 1)})
        return query

    def _key(self, tokens: Tensor) -> Any:
        return self._computed_with_query(1, tokens)

    def _value(self, tokens: Tensor) -> Any:
        return self._computed_with_query(2, tokens)

    def _computed_with_query(self, index: int, tokens: Tensor) -> Any:
        of, result = self._kept.pop(index, (None, None))
        if of is tokens:
            if not self._kept:
                self._counter.activity.use(TOGETHER)
            return result
        if of is not None:
            self._kept.clear()
            self._counter.activity.fall_back(OTHER_CODE)
        return self.below[index](tokens)

    def why_apart(self) -> str:
        """Return why the weights cannot be one tensor; "" if they can. Joins nothing."""
        kinds = [[(one.device, one.dtype, one.shape[1:]) for one in rows] for rows in self._rows()]
        alike = len(kinds[1]) in (0, len(self.layers)) and max(len(set(each)) for each in kinds) == 1
        return "" if alike else "its weights differ in device, dtype or width, or only some have a bias"

    def _rows(self) -> list[list[Any]]:
        """Return the weights, and the biases that there are."""
        found = [[layer._parameters.get(name) for layer in self.layers] for name in ("weight", "bias")]
        return [[one for one in rows if one is not None] for rows in found]

    def _places_now(self) -> list[tuple[int, int]]:
        """Return where the weights lie: these numbers change when one moves, or another takes its place."""
        return [(one.untyped_storage()._cdata, int(one.storage_offset())) for rows in self._rows() for one in rows]


def why_not_plain(layer: Module, plain: tuple[type, ...]) -> str:
    """Return why a layer is more than a product with its weight, ``plain`` being the classes that are not; else ""."""
    weight = layer._parameters.get("weight")
    if who := computed_by(replacement(layer)):
        return who
    if weight is not None and (kind := foreign(weight)):
        return f"its weights are {kind}"
    return "" if type(layer) in plain else f"its projections are {type(layer).__name__}, not plain linear layers"


def join_rows(tensors: Sequence[Tensor]) -> Parameter:
    """Return one tensor with the rows of all, in which the memory of ``tensors`` is from now on."""
    with torch.inference_mode(False), torch.no_grad():
        joined = Parameter(torch.cat([tensor.detach() for tensor in tensors]), requires_grad=False)
    start = 0
    for tensor in tensors:
        # Made in inference mode or not, each tensor stays as it is: the first kind cannot be changed in place outside
        # of that mode, which core does to parameters, and a mixture cannot be looked at outside of it.
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            rows = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            tensor.data = rows.set_(joined.untyped_storage(), start, tensor.shape, joined.stride())
        start += tensor.numel()
    return joined
