"""The projections of one attention layer, computed together wherever they are asked for the same tokens.

The layer's own code is not replaced: it goes on to ask its query, key and value projections one after the other. The
first that is asked computes all of them and keeps the others' results until they are asked for, which happens a line
later. A projection that is then asked for other tokens (a patch gave keys and values of their own) computes alone. So
whatever happens between the projections, the result is that of separate ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import Module

from ...core.activity import Activity

Join = Callable[[Sequence[Tensor]], Tensor]
"""Makes one tensor of all rows that shares the memory of its arguments, as ``rows.join_rows`` does, also when called
again for the last few of them."""

Product = Callable[[Tensor, int, int], Tensor]
"""``product(tokens, first, last)`` computes layers ``first`` to ``last - 1``."""

SEPARATE = -1
"""Plan of a call whose inputs are known to differ: every projection computes alone."""

WRONG_GUESS = "keys or values were asked for other tokens than foreseen"
NOT_FORESEEN = "other code replaces this attention, and asks for its projections one by one"


class FusedProjections:
    """Two or three linear layers (or convolutions of 1 x 1) that read the same input.

    Args:
        layers: query, key, value; or key, value. Each has ``weight`` ``[features, inputs, ...]`` and maybe ``bias``.
        names: what is computed together, by the number of the first layer, for counting; e.g. ``("q, k, v", "k, v")``.
        plan: number of the layer that computes for itself and all that follow, in every call; None where ``plan`` is
            set before each call by somebody who knows its inputs.
        axis: axis of the outputs that has the features.
        watched: attributes of the layers that decide how their class computes, and may change.

    Attributes:
        functions: what takes the place of each layer's ``forward``. The same objects for life, so that compiled graphs
            stay valid.
        plan: see above, for the call that runs. None: nobody has foreseen this call.
        joined: whether the joined weights are there; without them every projection computes alone.
        activity: counts what was computed together, and why a call was not.
    """

    def __init__(
        self,
        layers: Sequence[Module],
        names: Sequence[str],
        plan: int | None = None,
        axis: int = -1,
        watched: Sequence[str] = (),
    ) -> None:
        self.layers = tuple(layers)
        self.names = tuple(names)
        self.always = plan
        self.plan = plan
        self.axis = axis
        self._watched = [(layer.__dict__, name) for layer in self.layers for name in watched]
        self.functions = tuple(partial(self._project, index) for index in range(len(self.layers)))
        self.joined = False
        self.activity = Activity()
        # What the layers' own class does, whatever takes the place of their forward.
        self._alone: tuple[Callable[[Tensor], Tensor], ...] = tuple(
            partial(type(layer).forward, layer) for layer in self.layers
        )
        # Twins of the first layer with the weights of all layers from one number on; the last stands for itself.
        self._together = tuple(_twin(layer) for layer in self.layers[:-1])
        self._sizes: tuple[int, ...] = ()
        self._source: Tensor | None = None
        self._results: list[Tensor | None] = [None] * len(self.layers)
        self._built: list[object] = []

    def state(self) -> list[object]:
        """Return what the joined weights depend on. Quick, as it is asked in every call, and waits for no device."""
        weights = [layer._parameters["weight"] for layer in self.layers]
        places = [weight.data_ptr() for weight in weights if weight is not None]
        return [*places, *[attributes.get(name) for attributes, name in self._watched]]

    @property
    def ready(self) -> bool:
        """Whether the joined weights are there and are those that the layers have now."""
        return self._built == self.state()

    def build(self, join: Join) -> None:
        """Take over the layers' present weights, and the settings that decide how their class computes."""
        weights = [_weight(layer) for layer in self.layers]
        biases = [bias for layer in self.layers if (bias := layer._parameters.get("bias")) is not None]
        self._sizes = tuple(weight.shape[0] for weight in weights)
        for index, twin in enumerate(self._together):
            joined_bias = join(biases[index:]) if biases else None
            _become(twin, self.layers[index], join(weights[index:]), joined_bias)
        self._built = self.state()
        self.joined = True

    def forget(self) -> None:
        """Let go of the weights, so that a model that is unloaded frees its memory."""
        self._built = []
        self.joined = False
        for twin in self._together:
            twin._parameters["weight"] = twin._parameters["bias"] = None

    def reset(self) -> None:
        """Forget the tensors of a call, also of one that was broken off in the middle."""
        self.plan = self.always
        self._source = None
        self._results = [None] * len(self.layers)

    def compute_with(self, product: Product) -> None:
        """Let ``product`` compute from now on, alone and together."""
        count = len(self.layers)
        self._alone = tuple(partial(_run, product, first, first + 1) for first in range(count))
        for first, twin in enumerate(self._together):
            twin.__dict__["forward"] = partial(_run, product, first, count)

    def _project(self, index: int, tokens: Tensor) -> Tensor:
        """Compute projection ``index`` of ``tokens`` (what takes the place of the layer's ``forward``)."""
        result = self._results[index]
        if result is not None:
            self._results[index] = None
            if tokens is self._source:
                if index == len(self.layers) - 1:
                    self._source = None
                return result
            self.activity.fall_back(WRONG_GUESS)
            return self._alone[index](tokens)
        if index == self.plan and self.joined and index < len(self._together):
            together: Tensor = self._together[index](tokens)
            self.activity.use(self.names[index])
            parts: Sequence[Tensor] = together.split(self._sizes[index:], dim=self.axis)
            self._source = tokens
            for later, part in enumerate(parts[1:], start=index + 1):
                self._results[later] = part
            return parts[0]
        if self.plan is None and index == 0:
            self.activity.fall_back(NOT_FORESEEN)
        return self._alone[index](tokens)


def _run(product: Product, first: int, last: int, tokens: Tensor) -> Tensor:
    return product(tokens, first, last)


def _weight(layer: Module) -> Tensor:
    weight = layer._parameters["weight"]
    if weight is None:
        raise ValueError(f"{type(layer).__name__} has no weight")
    return weight


def _twin(layer: Module) -> Module:
    """Return a module of the class of ``layer``, without weights and outside of every tree of modules."""
    twin: Module = object.__new__(type(layer))
    _become(twin, layer, None, None)
    return twin


def _become(twin: Module, layer: Module, weight: Tensor | None, bias: Tensor | None) -> None:
    """Give ``twin`` the settings of ``layer``, and these weights. The twin stays the same object, see ``functions``."""
    settings = {name: value for name, value in layer.__dict__.items() if name not in ("forward", "_parameters")}
    twin.__dict__.update(settings)
    new = {"weight": weight, "bias": bias}
    parameters = {name: None if value is None else _frozen(value) for name, value in new.items()}
    twin.__dict__["_parameters"] = {**layer._parameters, **parameters}
    if weight is not None:
        for name in ("out_features", "out_channels"):
            if name in settings:
                twin.__dict__[name] = weight.shape[0]


def _frozen(value: Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(value, requires_grad=False)
