"""Tensors that other nodes hold, in the dtype that the MODEL had when they were made, and a network in another one.

Keys of image prompts, of negative prompts, of boxes: they meet the network in patches and wrappers, and are cast
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...core.not_copied import Args, Function, Kwargs, NotCopied
from ..run.comfy_technique import around_network
from ..structure.protocols import Executor, Options

_ALIKE = frozenset(
    (F.scaled_dot_product_attention, F.linear, torch.einsum, torch.matmul, torch.bmm, torch.baddbmm)
    + (Tensor.matmul, Tensor.__matmul__, Tensor.bmm, Tensor.baddbmm)
)
"""Functions that refuse tensors of different dtypes."""


class HeldTensors:
    """Lets the patches of other nodes compute in the dtype of what the network gives them."""

    def __init__(self) -> None:
        # The same object for each patch, on which compiled graphs are guarded. It holds no patch.
        self._made: WeakKeyDictionary[Function, _Patch] = WeakKeyDictionary()
        self._inside: dict[torch.dtype, Function] = {}

    def cast_inside(self, options: Options, dtype: torch.dtype) -> None:
        """Give the network its latent and its text in ``dtype``, whatever other nodes' wrappers have added to them."""
        if options.get("wrappers", {}).get("diffusion_model"):
            around_network(options, "held", self._inside.setdefault(dtype, partial(_inside, dtype)))

    def cast(self, options: Options) -> None:
        """Let the patches in a call's own ``options`` give tensors of the dtype that they are given."""
        for name in ("patches", "patches_replace"):
            options[name] = {place: self._patches(found) for place, found in options.get(name, {}).items()}

    def _patches(self, found: Any) -> Any:
        if isinstance(found, Mapping):
            return {key: self._patch(patch) for key, patch in found.items()}
        return [self._patch(patch) for patch in found] if isinstance(found, list) else found

    def _patch(self, patch: Function) -> Function:
        try:
            if patch not in self._made:
                self._made[patch] = _Patch(patch)
            return self._made[patch]
        except TypeError:  # an object that cannot be hashed or referred to weakly
            return patch


def _inside(
    dtype: torch.dtype, executor: Executor, x: Any, timestep: Any, context: Any = None, *args: Any, **kwargs: Any
) -> Any:
    return executor(_cast(x, dtype), timestep, _cast(context, dtype), *args, **kwargs)


class _Patch(NotCopied):
    def __init__(self, patch: Function) -> None:
        self._patch = ref(patch)

    @property
    def func(self) -> Function:
        """Whose this is: see ``computed_by``."""
        patch = self._patch()
        assert patch is not None, "the options of the call hold it"
        return patch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        patch = self.func
        given = next(iter(_floating(args)), None)
        if given is None:
            return patch(*args, **kwargs)
        with _Together(given.dtype):
            result = patch(*args, **kwargs)
        return _cast(result, given.dtype)


class _Together(TorchFunctionMode):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func in _ALIKE and len({one.dtype for one in _floating((*args, *kwargs.values()))}) > 1:
            args, kwargs = _cast(args, self._dtype), _cast(kwargs, self._dtype)
        return func(*args, **kwargs)


def _floating(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _floating(value)
        elif isinstance(value, Tensor) and value.is_floating_point():
            yield value


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if type(value) in (list, tuple):
        return type(value)(_cast(one, dtype) for one in value)
    return {key: _cast(one, dtype) for key, one in value.items()} if type(value) is dict else value
