"""The projections of one attention layer, computed together wherever they are asked for the same tokens.

The first projection that the layer's own code asks computes all of them and keeps the others' results for the next
lines. One that is then asked for other tokens (a patch gave keys and values of their own) computes alone. So the result
is always that of separate projections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.functional import linear

from ..core.activity import Activity
from ..core.weights import foreign
from .rows import join_rows, refuse_rows, separate_rows

ALL, KEYS_AND_VALUES = "q, k and v", "k and v"

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
    """Two or three linear layers of one attention layer that read the same input.

    Args:
        inputs: names of the first arguments of ``attention.forward`` where they decide in each call what the layers
            read, as in ``AttentionLayer``; empty where the layers always read the same.

    Attributes:
        layers: query, key, value; or key, value.
        functions: what takes the place of each layer's ``forward``; ``alone``: the ``forward`` that was there.
        foresee: what takes the place of the attention layer's ``forward``, and runs ``inner``; None if not needed.
            All these are the same objects for life, so that compiled graphs stay valid.
    """

    def __init__(self, attention: Module, layers: Sequence[Module], inputs: Sequence[str] = ()) -> None:
        self.attention, self.layers = attention, tuple(layers)
        self.names = (ALL, KEYS_AND_VALUES)[-len(layers) + 1 :]
        self.functions = tuple(Projection(self, index).forward for index in range(len(layers)))
        self.foresee = self._foresee if inputs else None
        self.inner: Callable[..., Any] = attention.forward
        self.alone: list[Callable[[Tensor], Tensor]] = [layer.forward for layer in layers]
        self.activity = Activity()
        self._inputs = tuple(inputs)
        self._sizes: tuple[int, ...] = ()
        # Of each layer but the last: weight and bias of it and of all behind it. Empty while each computes alone.
        self._together: list[tuple[Tensor, Tensor | None]] = []
        self._places: list[tuple[int, int]] = []
        self._refusal: str | None = None
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.reset()

    def why_alone(self, layer: Module, device: Any) -> str:
        """Return, quickly, why a layer must compute alone in the coming call on ``device``; "" if it need not."""
        return ""

    def prepare(self, device: Any = None) -> str | None:
        """Join the weights for calls on ``device`` unless they are; return why they cannot be, or None."""
        reason = next(filter(None, (self.why_alone(layer, device) for layer in self.layers)), None)
        if reason or self._places != self._places_now():
            self.forget()
            self._refusal = reason or self._join()
            self._places = [] if reason else self._places_now()
        return self._refusal

    def _places_now(self) -> list[tuple[int, int]]:
        """Return where the weights lie: these numbers change when one moves, or another takes its place."""
        weights = [layer._parameters.get(name) for layer in self.layers for name in ("weight", "bias")]
        return [(one.untyped_storage()._cdata, int(one.storage_offset())) for one in weights if one is not None]

    def forget(self) -> None:
        """Let go of the weights, so that a model that is unloaded frees its memory."""
        self._places, self._together = [], []

    def separate(self) -> None:
        """Let go of the weights, and give each layer memory of its own again, with the values it has now."""
        self.forget()
        for layer in self.layers:
            separate_rows(one for one in layer._parameters.values() if one is not None)

    def reset(self) -> None:
        """Forget the tensors of a call, also of one that was broken off in the middle."""
        # Number of the layer that computes for itself and all that follow; None: nobody has foreseen this call.
        self._plan = None if self._inputs else 0
        self._kept.clear()

    def _foresee(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self._inputs, args, strict=False)) | kwargs
        tokens, context, value = (given.get(name) for name in (*self._inputs, "")[:3])
        context = tokens if context is None else context
        if value is None or value is context:
            self._plan = 0 if context is tokens else len(self.layers) - 2
        result = self.inner(*args, **kwargs)
        self._plan = None
        return result

    def project(self, index: int, tokens: Tensor) -> Tensor:
        """Compute projection ``index`` of ``tokens``, and all that read the same for those who ask later."""
        kept = self._kept.pop(index, None)
        if kept is not None and kept[0] is tokens:
            return kept[1]
        if kept is None and index == self._plan and self._together:
            # In the dtype of the tokens, as ComfyUI's layers do where weights are kept in fewer bits.
            weight, bias = self._together[index]
            bias = None if bias is None else bias.to(tokens.dtype)
            together = linear(tokens, weight.to(tokens.dtype), bias)
            self.activity.use(self.names[index])
            own, *others = together.split_with_sizes(self._sizes[index:], dim=-1)
            self._kept.update({number: (tokens, other) for number, other in enumerate(others, index + 1)})
            return own
        if kept is not None or (index == 0 and (self._refusal or self._plan is None)):
            self.activity.fall_back(self._refusal or OTHER_CODE)
        return self.alone[index](tokens)

    def _join(self) -> str | None:
        weights: list[Any] = [layer._parameters["weight"] for layer in self.layers]
        biases = [bias for layer in self.layers if (bias := layer._parameters.get("bias")) is not None]
        if len(biases) not in (0, len(weights)):
            return "some of its projections have a bias and others do not"
        reasons = [f"its weights are {kind}" for weight in weights if (kind := foreign(weight))]
        refusal = next(filter(None, (*reasons, *map(refuse_rows, filter(None, (weights, biases))))), None)
        if refusal is None:
            self._sizes = tuple(len(weight) for weight in weights)
            starts = [sum(self._sizes[:index]) for index in range(len(weights) - 1)]
            joined, added = join_rows(weights), join_rows(biases) if biases else None
            self._together = [(_from(joined, at), None if added is None else _from(added, at)) for at in starts]
        return refusal


def _from(joined: Tensor, start: int) -> Parameter:
    return Parameter(joined[start:], requires_grad=False)
