"""Query, key and value of one attention layer, computed together in calls in which all three read the same tokens.

The query's layer computes all of them and keeps the others' results for the next lines of the layer's own code. One
that is then asked for other tokens (a patch gave keys and values of their own) computes alone. So the result is always
that of separate projections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.functional import linear

from ..core.activity import Activity
from ..core.replaced import computed_by, replacement
from ..core.weights import foreign

TOGETHER = "q, k and v"
OTHER_CODE = "other code replaces this attention, or gives its keys or values tokens of their own"


class Projection:
    """One linear layer of a group.

    Its method takes the place of the layer's ``forward``: blocks share compiled code through methods of ours alone.
    """

    def __init__(self, group: FusedProjections, index: int) -> None:
        self._group, self._index = group, index

    def forward(self, tokens: Tensor) -> Tensor:
        return self._group.project(self._index, tokens)


class FusedProjections:
    """The linear layers of one attention layer for query, key and value.

    Args:
        inputs: names of the first arguments of ``attention.forward`` where they decide in each call what the layers
            read, as in ``AttentionLayer``; empty where all three always read the same.

    Attributes:
        functions: what takes the place of each layer's ``forward``; ``alone``: the ``forward`` that was there.
        foresee: what takes the place of the attention layer's ``forward``, and runs ``inner``; None if not needed.
            All these are the same objects for life, so that compiled graphs stay valid.
    """

    def __init__(self, attention: Module, layers: Sequence[Module], inputs: Sequence[str]) -> None:
        self.attention, self.layers = attention, tuple(layers)
        self.functions = tuple(Projection(self, index).forward for index in range(len(layers)))
        self.foresee = self._foresee if inputs else None
        self.inner: Callable[..., Any] = attention.forward
        self.alone: list[Callable[[Tensor], Tensor]] = [layer.forward for layer in layers]
        self.activity = Activity()
        self._inputs = tuple(inputs)
        self._sizes: tuple[int, ...] = ()
        self._joined: tuple[Tensor, Tensor | None] | None = None
        self._places: list[tuple[int, int]] = []
        self._refusal = ""
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.reset()

    def prepare(self, refusal: str) -> str:
        """Join the weights unless they are, or a host refuses it; return why they are not, "" if they are."""
        self._refusal = refusal
        if refusal:
            self._joined = None
        elif self._joined is None or self._places != self._places_now():
            self._joined = None  # lets go of the memory of before first
            self._refusal = self.why_apart()
            if not self._refusal:
                self._joined = self._join()
            self._places = self._places_now()
        return self._refusal

    def _places_now(self) -> list[tuple[int, int]]:
        """Return where the weights lie: these numbers change when one moves, or another takes its place."""
        weights = [layer._parameters.get(name) for layer in self.layers for name in ("weight", "bias")]
        return [(one.untyped_storage()._cdata, int(one.storage_offset())) for one in weights if one is not None]

    def separate(self) -> None:
        """Give each layer memory of its own again, with the values it has now."""
        self._joined = None
        for tensor in (one for layer in self.layers for one in layer._parameters.values() if one is not None):
            if tensor.untyped_storage().nbytes() > tensor.nbytes:
                with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                    tensor.data = tensor.data.clone()

    def reset(self) -> None:
        """Forget the tensors of a call, also of one that was broken off in the middle."""
        # Whether all three read the same tokens; None: nobody has foreseen this call.
        self._alike = None if self._inputs else True
        self._kept.clear()

    def _foresee(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self._inputs, args, strict=False)) | kwargs
        tokens, *others = (given.get(name) for name in self._inputs)
        self._alike = all(other is None or other is tokens for other in others)
        result = self.inner(*args, **kwargs)
        self._alike = None
        return result

    def project(self, index: int, tokens: Tensor) -> Tensor:
        """Compute projection ``index`` of ``tokens``: the query (0) with the two that follow, where that is right."""
        kept = self._kept.pop(index, None)
        if kept is not None and kept[0] is tokens:
            return kept[1]
        if index == 0 and self._alike and self._joined is not None:
            # In the dtype of the tokens, as ComfyUI's layers do where weights are kept in fewer bits.
            weight, bias = self._joined
            bias = None if bias is None else bias.to(tokens.dtype)
            together = linear(tokens, weight.to(tokens.dtype), bias)
            self.activity.use(TOGETHER)
            own, *others = together.split_with_sizes(self._sizes, dim=-1)
            self._kept.update({number: (tokens, other) for number, other in enumerate(others, 1)})
            return own
        if kept is not None or (index == 0 and self._alike is not False):
            self.activity.fall_back(self._refusal or OTHER_CODE)
        return self.alone[index](tokens)

    def why_apart(self) -> str:
        """Return why the weights cannot be one tensor; "" if they can. Joins nothing."""
        weights, biases = self._rows()
        if len(biases) not in (0, len(weights)):
            return "some of its projections have a bias and others do not"
        if any(len({(one.device, one.dtype, one.shape[1:]) for one in kind}) > 1 for kind in (weights, biases)):
            return "its weights differ in device, dtype or width"
        return ""

    def _rows(self) -> tuple[list[Any], list[Any]]:
        weights = [layer._parameters["weight"] for layer in self.layers]
        return weights, [bias for layer in self.layers if (bias := layer._parameters.get("bias")) is not None]

    def _join(self) -> tuple[Tensor, Tensor | None]:
        weights, biases = self._rows()
        self._sizes = tuple(len(weight) for weight in weights)
        return join_rows(weights), join_rows(biases) if biases else None


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
