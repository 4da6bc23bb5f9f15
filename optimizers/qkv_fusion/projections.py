"""The projections of one attention layer, computed together wherever they are asked for the same tokens.

The first projection that the layer's own code asks computes all of them and keeps the others' results for the next
lines. One that is then asked for other tokens (a patch gave keys and values of their own) computes alone. So the result
is always that of separate projections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn import Module, Parameter

from ...core.activity import Activity
from ...core.weights import foreign

ALL, KEYS_AND_VALUES = "q, k and v", "k and v"

OTHER_CODE = "other code replaces this attention, or gives its keys or values tokens of their own"


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
        left_alone: what takes its place where the weights cannot be joined: counts why, and runs ``inner``.
        alone: computes each layer: what its own class does, whatever takes the place of its ``forward``.
        together: twins of each layer but the last, with the weights of all layers from there on.
    """

    def __init__(self, attention: Module, layers: dict[str, Module], inputs: Sequence[str] = ()) -> None:
        self.attention, self.attributes, self.layers = attention, tuple(layers), tuple(layers.values())
        self.names = (ALL, KEYS_AND_VALUES)[-len(layers) + 1 :]
        self.functions = tuple(Projection(self, index) for index in range(len(layers)))
        self.foresee = self._foresee if inputs else None  # one object for life
        self.left_alone = self._left_alone
        self.inner: Callable[..., Any] = attention.forward
        self.alone: tuple[Callable[[Tensor], Tensor], ...] = tuple(
            partial(type(layer).forward, layer) for layer in self.layers
        )
        self.together: tuple[Module, ...] = tuple(object.__new__(type(layer)) for layer in self.layers[:-1])
        self.activity = Activity()
        self._inputs = tuple(inputs)
        self._joined = False  # without joined weights every projection computes alone
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
        if self._joined:
            for twin in self.together:
                twin._parameters["weight"] = twin._parameters["bias"] = None
        self._seen, self._joined = [], False

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

    def _left_alone(self, *args: Any, **kwargs: Any) -> Any:
        result = self.inner(*args, **kwargs)
        if self._refusal is not None:
            self.activity.fall_back(self._refusal)
        return result

    def project(self, index: int, tokens: Tensor) -> Tensor:
        """Compute projection ``index`` of ``tokens``, and all that read the same for those who ask later."""
        kept = self._kept.pop(index, None)
        if kept is not None and kept[0] is tokens:
            return kept[1]
        if kept is None and index == self._plan and self._joined:
            together: Tensor = self.together[index].forward(tokens)
            self.activity.use(self.names[index])
            own, *others = together.split_with_sizes(self._sizes[index:], dim=-1)
            self._kept.update({number: (tokens, other) for number, other in enumerate(others, index + 1)})
            return own
        if kept is not None or (index == 0 and self._plan is None):
            self.activity.fall_back(OTHER_CODE)
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
        if refusal is None:
            self._sizes = tuple(weight.shape[0] for weight in weights)
            joined = [join_rows(tensors) for tensors in rows]
            for index, twin in enumerate(self.together):
                own: list[Any] = [tensor[sum(self._sizes[:index]) :] for tensor in joined]
                bias = own.pop() if biases else None
                new = {"weight": self.rebuilt(weights[index], own), "bias": bias}
                frozen = {key: None if one is None else Parameter(one, requires_grad=False) for key, one in new.items()}
                # The settings of the layer, outside of every tree of modules. Our int8 layers count for how many it is.
                settings = {key: value for key, value in self.layers[index].__dict__.items() if key != "forward"}
                settings["_parameters"] = {**settings["_parameters"], **frozen}
                stands_for, rows = len(self.layers) - index, new["weight"].shape[0]
                twin.__dict__.update(settings, out_features=rows, stands_for=stands_for)
            self._joined = True
        return refusal

    def _state(self, device: Any) -> list[Any]:
        layers = zip(self.attributes, self.layers, strict=True)
        return [(*self.look(name, layer, device), _place_of(layer._parameters.get("weight"))) for name, layer in layers]


def _place_of(weight: Any) -> int:
    """Return a number that changes when a weight moves or another one takes its place."""
    if weight is None:
        return 0
    return id(weight) if issubclass(type(weight), FakeTensor) else weight.data_ptr()


MATRIX_ALIGNMENT, VECTOR_ALIGNMENT = 64, 16
"""Bytes. Allocators begin tensors on such a boundary, and matrix kernels choose their code by it, so a weight that
began elsewhere could give other bits than before. A bias is only added."""


def refuse_rows(tensors: Sequence[torch.Tensor]) -> str | None:
    """Return why ``tensors`` ``[rows, ...]`` cannot be one tensor of all their rows, or None if they can."""
    first = tensors[0]
    alignment = MATRIX_ALIGNMENT if first.ndim > 1 else VECTOR_ALIGNMENT
    possible = {
        "are one and the same": len({id(tensor) for tensor in tensors}) == len(tensors),
        "are on different devices": all(tensor.device == first.device for tensor in tensors),
        "have different dtypes": all(tensor.dtype == first.dtype for tensor in tensors),
        "have rows of different lengths": all(tensor.shape[1:] == first.shape[1:] for tensor in tensors),
        "are not contiguous": all(tensor.is_contiguous() for tensor in tensors),
        f"do not fill whole blocks of {alignment} bytes": all(
            tensor.numel() * tensor.element_size() % alignment == 0 for tensor in tensors[:-1]
        ),
    }
    return next((f"its weights {reason}" for reason, holds in possible.items() if not holds), None)


def join_rows(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one tensor ``[sum of rows, ...]`` that shares its memory with ``tensors``, none of which change in value.

    Where they do not lie behind each other yet, they are copied there and their ``data`` is set to the new place.
    ``refuse_rows`` must have no objection to them.
    """
    first, starts = tensors[0], [0, *accumulate(tensor.numel() for tensor in tensors)]
    storage, begin = first.untyped_storage(), int(first.storage_offset())
    places = [(tensor.untyped_storage()._cdata, tensor.storage_offset()) for tensor in tensors]
    # Two allocations can touch by chance; only one and the same can be looked at through one tensor.
    if places != [(storage._cdata, begin + start) for start in starts[:-1]]:
        with torch.inference_mode(False), torch.no_grad():
            storage, begin = torch.cat([tensor.detach() for tensor in tensors]).untyped_storage(), 0
        for tensor, start in zip(tensors, starts, strict=False):
            # Made in inference mode or not, each tensor stays as it is: the first kind cannot be changed in place
            # outside of that mode, which core does to parameters, and a mixture cannot be looked at outside of it.
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                tensor.data = _rows(storage, start, tensor, tensor.shape[0])
    with torch.inference_mode(False), torch.no_grad():
        return _rows(storage, begin, first, sum(tensor.shape[0] for tensor in tensors))


def separate_rows(tensors: Iterable[torch.Tensor]) -> None:
    """Undo ``join_rows``: give each tensor that is part of a larger piece of memory one of its own, with its values."""
    for tensor in tensors:
        if tensor.untyped_storage().nbytes() > tensor.nbytes:
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                tensor.data = tensor.data.clone()


def _rows(storage: torch.UntypedStorage, begin: int, like: torch.Tensor, count: int) -> torch.Tensor:
    """Return ``count`` rows like those of ``like``, from element ``begin`` of ``storage`` on."""
    rows = torch.empty(0, dtype=like.dtype, device=like.device)
    return rows.set_(storage, begin, (count, *like.shape[1:]), like.stride())
