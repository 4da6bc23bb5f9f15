"""The projections of one attention layer, computed together wherever they are asked for the same tokens.

The first projection that the layer's own code asks computes all of them and keeps the others' results for the next
lines. One that is then asked for other tokens (a patch gave keys and values of their own) computes alone. So the result
is always that of separate projections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn import Module, Parameter

from ...core.activity import Activity
from .rows import PLAIN, join_rows, refuse_rows

ALL, KEYS_AND_VALUES = "q, k and v", "k and v"

SEPARATE = -1
"""Plan of a call whose inputs are known to differ: every projection computes alone."""

WRONG_GUESS = "keys or values were asked for other tokens than foreseen"
NOT_FORESEEN = "other code replaces this attention, and asks for its projections one by one"
OTHER_INPUTS = "other code gives keys and values tokens of their own"


class Projection:
    """Takes the place of one linear layer, or of its ``forward``; all but a call of it goes to the layer itself."""

    def __init__(self, group: FusedProjections, index: int) -> None:
        self._group, self._index, self._layer = group, index, group.layers[index]

    def __call__(self, tokens: Tensor) -> Tensor:
        return self._group.project(self._index, tokens)

    def __getattr__(self, name: str) -> Any:
        """Return what the layer has; a copy that is being made has nothing yet."""
        if name == "_layer":
            raise AttributeError(name)
        return getattr(self._layer, name)


class FusedProjections:
    """Two or three linear layers of one attention layer that read the same input. A host says more of their weights.

    Args:
        layers: by their names in ``attention``: query, key, value; or key, value.
        inputs: names of the first arguments of ``attention.forward`` where they decide in each call what the layers
            read, as in ``AttentionLayer``; empty where the layers always read the same.

    Attributes:
        functions: what takes the place of each layer. The same objects for life, so that compiled graphs stay valid.
        foresee: what takes the place of the attention layer's ``forward``, and runs ``inner``; None if not needed.
        alone: computes each layer: what its own class does, whatever takes the place of its ``forward``.
        together: twins of each layer but the last, with the weights of all layers from there on.
        plan: number of the layer that computes for itself and all that follow, in the call that runs. None: nobody has
            foreseen this call.
        joined: whether the joined weights are there; without them every projection computes alone.
    """

    def __init__(self, attention: Module, layers: dict[str, Module], inputs: Sequence[str] = ()) -> None:
        self.attention, self.attributes, self.layers = attention, tuple(layers), tuple(layers.values())
        self.names = (ALL, KEYS_AND_VALUES)[-len(layers) + 1 :]
        self.functions = tuple(Projection(self, index) for index in range(len(layers)))
        self.foresee = self._foresee if inputs else None  # one object for life
        self.inner: Callable[..., Any] = attention.forward
        self.alone: tuple[Callable[[Tensor], Tensor], ...] = tuple(
            partial(type(layer).forward, layer) for layer in self.layers
        )
        self.together: tuple[Module, ...] = tuple(object.__new__(type(layer)) for layer in self.layers[:-1])
        self.joined = False
        self.activity = Activity()
        self._inputs = tuple(inputs)
        self._sizes: tuple[int, ...] = ()
        self._seen: list[Any] = []
        self._refusal: str | None = None
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.reset()

    def look(self, name: str, layer: Module, device: Any) -> tuple[object, ...]:
        """Return why a layer's weight cannot be used in the coming call, or None; then all else that may change.

        Asked in every call, so it is quick and waits for no device.
        """
        return (None,)

    def refuse(self, weights: Sequence[Any]) -> str | None:
        """Return why the layers cannot compute together with these weights, or None."""
        other = next((type(weight) for weight in weights if type(weight) not in PLAIN), None)
        return refuse_rows(weights) if other is None else f"its weights are {other.__name__}"

    def join(self, weights: Sequence[Any]) -> Any:
        """Return one weight of all rows that shares the memory of ``weights``, also of the last few of them again."""
        return join_rows(weights)

    def prepare(self, device: Any = None) -> str | None:
        """Join the weights for calls on ``device`` unless they are; return why they cannot be, or None."""
        now = self._state(device)
        if now != self._seen:
            self.forget()
            self._refusal = next((state[0] for state in now if state[0] is not None), None) or self._join_all()
            self._seen = self._state(device)
        return self._refusal

    def forget(self) -> None:
        """Let go of the weights, so that a model that is unloaded frees its memory."""
        if self.joined:
            for twin in self.together:
                twin._parameters["weight"] = twin._parameters["bias"] = None
        self._seen, self.joined = [], False

    def reset(self) -> None:
        """Forget the tensors of a call, also of one that was broken off in the middle."""
        self.plan = None if self._inputs else 0
        self._kept.clear()

    def project(self, index: int, tokens: Tensor) -> Tensor:
        """Compute projection ``index`` of ``tokens``, and all that read the same for those who ask later."""
        kept = self._kept.pop(index, None)
        if kept is not None:
            if kept[0] is tokens:
                return kept[1]
            self.activity.fall_back(WRONG_GUESS)
        elif index == self.plan and self.joined and index < len(self.together):
            self.activity.use(self.names[index])
            together: Tensor = self.together[index].forward(tokens)
            own, *others = together.split_with_sizes(self._sizes[index:], dim=-1)
            self._kept.update({number: (tokens, other) for number, other in enumerate(others, index + 1)})
            return own
        elif self.plan is None and index == 0:
            self.activity.fall_back(NOT_FORESEEN)
        return self.alone[index](tokens)

    def _foresee(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self._inputs, args, strict=False)) | kwargs
        tokens, context, value = (given.get(name) for name in (*self._inputs, "")[:3])
        context = tokens if context is None else context
        self.plan = 0 if context is tokens else len(self.layers) - 2
        if value is not None and value is not context:
            self.plan = SEPARATE
            self.activity.fall_back(OTHER_INPUTS)
        result = self.inner(*args, **kwargs)
        self.plan = None
        return result

    def _join_all(self) -> str | None:
        weights, biases = self._of_each("weight"), self._of_each("bias")
        if len(weights) < len(self.layers):
            return "some of its projections have no weights"
        if len(biases) not in (0, len(weights)):
            return "some of its projections have a bias and others do not"
        refusal = self.refuse(weights) or (refuse_rows(biases) if biases else None)
        if refusal is None:
            self._sizes = tuple(weight.shape[0] for weight in weights)
            for index, twin in enumerate(self.together):
                joined_bias = join_rows(biases[index:]) if biases else None
                _become(twin, self.layers[index], self.join(weights[index:]), joined_bias)
            self.joined = True
        return refusal

    def _of_each(self, name: str) -> list[Tensor]:
        return [tensor for layer in self.layers if (tensor := layer._parameters.get(name)) is not None]

    def _state(self, device: Any) -> list[Any]:
        layers = zip(self.attributes, self.layers, strict=True)
        return [(*self.look(name, layer, device), place_of(layer._parameters["weight"])) for name, layer in layers]


def place_of(weight: Any) -> int:
    """Return a number that changes when a weight moves or another one takes its place."""
    if weight is None:
        return 0
    return id(weight) if issubclass(type(weight), FakeTensor) else weight.data_ptr()


def _become(twin: Module, layer: Module, weight: Tensor, bias: Tensor | None) -> None:
    """Give ``twin`` the settings of ``layer``, and these weights. It stays outside of every tree of modules."""
    twin.__dict__.update({key: value for key, value in layer.__dict__.items() if key != "forward"})
    new = {"weight": weight, "bias": bias}
    frozen = {name: None if value is None else Parameter(value, requires_grad=False) for name, value in new.items()}
    twin.__dict__.update(_parameters={**layer._parameters, **frozen}, out_features=weight.shape[0])
