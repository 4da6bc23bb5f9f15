"""The projections of one attention layer, computed together wherever they are asked for the same tokens.

The first projection that the layer's own code asks computes all of them and keeps the others' results for the next
lines. One that is then asked for other tokens (a patch gave keys and values of their own) computes alone. So the result
is always that of separate projections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn import Module, Parameter

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
    """Two or three linear layers of one attention layer that read the same input. A host says more of their weights.

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
        # Twins of each layer but the last, with the weights of all layers from there on.
        self._together: tuple[Module, ...] = tuple(object.__new__(type(layer)) for layer in layers[:-1])
        self._inputs = tuple(inputs)
        self._sizes: tuple[int, ...] = ()  # of the joined weights: empty while every projection computes alone
        self._seen: list[Any] = []
        self._refusal: str | None = None
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.reset()

    def look(self, layer: Module, device: Any) -> tuple[object, ...]:
        """Return, quickly, why a weight cannot be used in the coming call, or None; then all that may change."""
        return (None,)

    def refuse(self, weights: Sequence[Any]) -> str | None:
        """Return why the layers cannot compute together with these weights, or None; ``refuse_rows`` says the rest."""
        return next((f"its weights are {found}" for weight in weights if (found := foreign(weight))), None)

    def parts(self, weight: Any) -> tuple[Tensor, ...]:
        """Return the tensors that a weight consists of, each with its rows."""
        return (weight,)

    def rebuilt(self, weight: Any, parts: Sequence[Tensor]) -> Any:
        """Return a weight like ``weight`` of these parts."""
        return parts[0]

    def prepare(self, device: Any = None) -> str | None:
        """Join the weights for calls on ``device`` unless they are; return why they cannot be, or None."""
        now = self._state(device)
        if now != self._seen:
            self.forget()
            self._refusal = next((state[0] for state in now if state[0]), None) or self._join()
            self._seen = self._state(device)
        return self._refusal

    def forget(self) -> None:
        """Let go of the weights, so that a model that is unloaded frees its memory."""
        for twin in self._together if self._sizes else ():
            twin._parameters["weight"] = twin._parameters["bias"] = None
        self._seen, self._sizes = [], ()

    def separate(self) -> None:
        """Let go of the weights, and give each layer memory of its own again, with the values it has now."""
        self.forget()
        for layer in self.layers:
            for parameter in layer._parameters.values():
                separate_rows(() if parameter is None else self.parts(parameter))

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
        if kept is None and index == self._plan and self._sizes:
            together: Tensor = self._together[index].forward(tokens)
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
        refusal = self.refuse(weights)
        if refusal is not None:
            return refusal
        rows = [*zip(*map(self.parts, weights), strict=True), *([biases] if biases else [])]
        refusal = next(filter(None, map(refuse_rows, rows)), None)
        if refusal is not None:
            return refusal
        self._sizes = tuple(weight.shape[0] for weight in weights)
        joined = [join_rows(tensors) for tensors in rows]
        for index, twin in enumerate(self._together):
            own: list[Any] = [tensor[sum(self._sizes[:index]) :] for tensor in joined]
            new = {"bias": own.pop() if biases else None, "weight": self.rebuilt(weights[index], own)}
            frozen = {key: None if one is None else Parameter(one, requires_grad=False) for key, one in new.items()}
            # The settings of the layer, outside of every tree of modules. Our int8 layers count for how many it is.
            settings = {key: value for key, value in self.layers[index].__dict__.items() if key != "forward"}
            settings["_parameters"] = {**settings["_parameters"], **frozen}
            settings |= {"out_features": sum(self._sizes[index:]), "stands_for": len(self.layers) - index}
            twin.__dict__.update(settings)
        return None

    def _state(self, device: Any) -> list[Any]:
        return [(*self.look(layer, device), _place_of(layer._parameters.get("weight"))) for layer in self.layers]


def _place_of(weight: Any) -> int:
    """Return a number that changes when a weight moves or another one takes its place."""
    if weight is None:
        return 0
    return id(weight) if issubclass(type(weight), FakeTensor) else weight.data_ptr()
