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
from ...core.shadow import Shadows
from .rows import join_rows

ALL, KEYS_AND_VALUES = "q, k and v", "k and v"

SEPARATE = -1
"""Plan of a call whose inputs are known to differ: every projection computes alone."""

WRONG_GUESS = "keys or values were asked for other tokens than foreseen"
NOT_FORESEEN = "other code replaces this attention, and asks for its projections one by one"
OTHER_INPUTS = "other code gives keys and values tokens of their own"

Join = Callable[[Sequence[Tensor]], Tensor]
"""Makes one tensor of all rows that shares the memory of its arguments, as ``join_rows`` does, also when called again
for the last few of them."""

Refuse = Callable[[Sequence[Module]], str | None]
"""Says why layers cannot compute together with the weights they have, or None."""


class Projection:
    """Takes the place of one linear layer, or of its ``forward``; all but a call of it goes to the layer itself."""

    def __init__(self, group: FusedProjections, index: int) -> None:
        self._group, self._index, self._layer = group, index, group.layers[index]
        self._is_last = index == len(group.layers) - 1

    def __call__(self, tokens: Tensor) -> Tensor:
        """Compute the projection of ``tokens`` ``[..., inputs]``, or return what was computed with another one."""
        group, index = self._group, self._index
        result = group.results[index]
        if result is None or tokens is not group.source:
            return group.project(index, tokens)
        group.results[index] = None
        if self._is_last:
            group.source = None
        return result

    def __getattr__(self, name: str) -> Any:
        """Return what the layer has; a copy that is being made has nothing yet."""
        if name == "_layer":
            raise AttributeError(name)
        return getattr(self._layer, name)


class FusedProjections:
    """Two or three linear layers of one attention layer that read the same input.

    Args:
        layers: query, key, value; or key, value. Each has ``weight`` ``[features, inputs]`` and maybe ``bias``.
        inputs: names of the first arguments of ``attention.forward`` where they decide in each call what the layers
            read, as in ``AttentionLayer``; empty where the layers always read the same.
        watched: attributes of the layers that decide how their class computes, and may change.
        attributes: what ``attention`` calls the layers.

    Attributes:
        functions: what takes the place of each layer. The same objects for life, so that compiled graphs stay valid.
        foresee: what takes the place of the attention layer's ``forward``, and runs ``inner``; None if not needed.
        alone: computes each layer: what its own class does, whatever takes the place of its ``forward``.
        together: twins of each layer but the last, with the weights of all layers from there on.
        plan: number of the layer that computes for itself and all that follow, in the call that runs. None: nobody has
            foreseen this call.
        joined: whether the joined weights are there; without them every projection computes alone.
        source: the tokens that several projections were computed of.
        results: what was computed of them and not asked for yet, by the projection's number.
    """

    def __init__(
        self,
        attention: Module,
        layers: Sequence[Module],
        inputs: Sequence[str] = (),
        watched: Sequence[str] = (),
        attributes: Sequence[str] = (),
    ) -> None:
        self.attention = attention
        self.layers = tuple(layers)
        self.names = (ALL, KEYS_AND_VALUES)[-len(layers) + 1 :]
        self.attributes = tuple(attributes)
        self.functions = tuple(Projection(self, index) for index in range(len(layers)))
        self.plan: int | None = None
        self.joined = False
        self.activity = Activity()
        self._inputs = tuple(inputs)
        self.foresee = self._foresee if inputs else None  # one object for life
        self._shadows: dict[str, Any] = dict(zip(attributes, self.functions, strict=False))
        if self.foresee is not None:
            self._shadows["forward"] = self.foresee
        self.inner: Callable[..., Any] = attention.forward
        self.alone: tuple[Callable[[Tensor], Tensor], ...] = tuple(
            partial(type(layer).forward, layer) for layer in layers
        )
        self.together = tuple(_twin(layer) for layer in layers[:-1])
        self._watched = [(layer.__dict__, name) for layer in layers for name in watched]
        self._sizes: tuple[int, ...] = ()
        self._built: list[object] = []
        self._refused: tuple[list[object], str] | None = None
        self.source: Tensor | None = None
        self.results: list[Tensor | None] = [None] * len(self.layers)
        self.reset()

    def prepare(self, refuse: Refuse, join: Join = join_rows) -> str | None:
        """Join the weights unless they are joined already; return why they cannot be, or None."""
        now = self._state()
        if now == self._built:
            return None
        if self._refused is None or self._refused[0] != now:
            reason = refuse(self.layers)
            self._refused = None if reason is None else (now, reason)
        if self._refused is not None:
            return self._refused[1]
        weights = [weight for layer in self.layers if (weight := layer._parameters["weight"]) is not None]
        biases = [bias for layer in self.layers if (bias := layer._parameters.get("bias")) is not None]
        self._sizes = tuple(weight.shape[0] for weight in weights)
        for index, twin in enumerate(self.together):
            joined_bias = join(biases[index:]) if biases else None
            _become(twin, self.layers[index], join(weights[index:]), joined_bias)
        self._built = self._state()
        self.joined = True
        return None

    def forget(self) -> None:
        """Let go of the weights, so that a model that is unloaded frees its memory."""
        self._built = []
        self.joined = False
        for twin in self.together:
            twin._parameters["weight"] = twin._parameters["bias"] = None

    def put_in(self, shadows: Shadows) -> None:
        """Take the place of the layers: the attention asks us, without the time that a call of a module takes."""
        if self.foresee is not None:
            self.inner = self.attention.forward
        shadows.put_all(self.attention, self._shadows)

    def reset(self) -> None:
        """Forget the tensors of a call, also of one that was broken off in the middle."""
        self.plan = None if self._inputs else 0
        if self.source is not None:
            self.source = None
            self.results = [None] * len(self.layers)

    def _state(self) -> list[object]:
        """Return what the joined weights depend on. Quick, as it is asked in every call, and waits for no device."""
        state: list[object] = [attributes.get(name) for attributes, name in self._watched]
        return [*state, *[place_of(layer._parameters["weight"]) for layer in self.layers]]

    def _foresee(self, *args: Any, **kwargs: Any) -> Any:
        names, count = self._inputs, len(args)
        tokens = args[0] if count else kwargs.get(names[0])
        context = args[1] if count > 1 else kwargs.get(names[1])
        value = None if len(names) < 3 else args[2] if count > 2 else kwargs.get(names[2])
        if context is None:
            context = tokens
        if value is not None and value is not context:
            self.plan = SEPARATE
            self.activity.fall_back(OTHER_INPUTS)
        else:
            self.plan = 0 if context is tokens else len(self.layers) - 2
        result = self.inner(*args, **kwargs)
        self.plan = None
        return result

    def project(self, index: int, tokens: Tensor) -> Tensor:
        """Compute projection ``index`` of ``tokens``, and all that read the same for those who ask later."""
        if self.results[index] is not None:
            self.results[index] = None
            self.activity.fall_back(WRONG_GUESS)
            return self.alone[index](tokens)
        if index == self.plan and self.joined and index < len(self.together):
            together: Tensor = self.together[index].forward(tokens)
            self.activity.use(self.names[index])
            own, *others = together.split_with_sizes(self._sizes[index:], dim=-1)
            self.source = tokens
            self.results[index + 1 :] = others
            return own
        if self.plan is None and index == 0:
            self.activity.fall_back(NOT_FORESEEN)
        return self.alone[index](tokens)


def place_of(weight: Tensor | None) -> int:
    """Return a number that changes when a weight moves or another one takes its place."""
    if weight is None:
        return 0
    return id(weight) if issubclass(type(weight), FakeTensor) else weight.data_ptr()


def _twin(layer: Module) -> Module:
    """Return a module of the class of ``layer``, without weights and outside of every tree of modules."""
    twin: Module = object.__new__(type(layer))
    _become(twin, layer, None, None)
    return twin


def _become(twin: Module, layer: Module, weight: Tensor | None, bias: Tensor | None) -> None:
    """Give ``twin`` the settings of ``layer``, and these weights. The twin stays the same object, see ``functions``."""
    twin.__dict__.update({key: value for key, value in layer.__dict__.items() if key not in ("forward", "_parameters")})
    new = {"weight": weight, "bias": bias}
    frozen = {name: None if value is None else Parameter(value, requires_grad=False) for name, value in new.items()}
    twin.__dict__["_parameters"] = {**layer._parameters, **frozen}
    if weight is not None:
        twin.__dict__["out_features"] = weight.shape[0]
