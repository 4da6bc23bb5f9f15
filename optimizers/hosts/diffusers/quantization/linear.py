"""The int8 product that computes for linear layers, made anew from their weights whenever these have changed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import Linear

from .....core.errors import BackendUnavailable
from ....qkv_fusion.projections import FusedProjections
from ....quantization.kernels import SafeKernel, weight_only_linear
from ....quantization.layers import Layer
from ....quantization.rounding import Int8Weight, quantize_weight
from ..patches import Patches


class Int8Product:
    """One product: of a linear layer, or of several whose outputs come out of one product because they are fused.

    Any run of its layers can be computed: rows of a weight are scaled one by one. ``group`` is the fused group, if it
    is one; ``tokens`` and ``protected`` as in ``Layer``.
    """

    def __init__(
        self,
        name: str,
        layers: tuple[Linear, ...],
        tokens: int | None,
        protected: str,
        group: FusedProjections | None = None,
    ) -> None:
        self.layers, self._group = layers, group
        self._sizes = [layer.out_features for layer in layers]
        nbytes = sum(layer.weight.nbytes for layer in layers)
        self.layer = Layer(name, layers[0].in_features, sum(self._sizes), tokens, nbytes, protected)
        self._kernel: SafeKernel | None = None
        self._weights: dict[tuple[int, int], Int8Weight | Tensor] = {}
        self._seen: tuple[object, ...] = ()

    @property
    def is_away(self) -> bool:
        """Whether its weights are somewhere else at the moment."""
        return any(layer.weight.device.type == "meta" for layer in self.layers)

    @property
    def moved(self) -> bool:
        """Whether the layers are on another device, or in another dtype, than when they were quantised."""
        return self._seen != self._state()

    def weight(self) -> Tensor:
        """Return all rows of weights, ``[out, in]``."""
        return torch.cat([layer.weight.detach() for layer in self.layers])

    def put_in(
        self, kernel: SafeKernel | None, rotation: int, torchao: bool, count: Callable[[], None], patches: Patches
    ) -> None:
        """Compute for the layers from now on.

        ``kernel`` None computes with floating point tokens (weight only); ``rotation`` as in ``Int8Weight``;
        ``torchao``: whether torchao's ``quantize_`` makes and multiplies the weights; ``count`` is called for each
        product in int8.
        """
        self._kernel, self._rotation, self._torchao, self._count = kernel, rotation, torchao, count
        self.quantize()
        if self._group is not None:
            total = len(self.layers)
            self._group.alone = tuple(partial(self.compute, first, first + 1) for first in range(total))
            for first, twin in enumerate(self._group.together):
                twin.__dict__["forward"] = partial(self.compute, first, total)
            return

        @functools.wraps(Linear.forward)
        def forward(tokens: Tensor, *args: object, **options: object) -> Tensor:
            return self.compute(0, 1, tokens)

        def unless_cast(theirs: Callable[..., Tensor]) -> Callable[..., Tensor]:
            return theirs if hasattr(self.layers[0], "_diffusers_hook") else forward  # brings or casts its weights

        patches.on_undo(self._forget)
        patches.wrap(self.layers[0], "forward", unless_cast)

    def _forget(self) -> None:
        self._weights = {}

    def quantize(self) -> None:
        with torch.no_grad(), torch.inference_mode(False):
            weight, count = self.weight(), len(self.layers)
            # What fused projections ask for: everything, everything after the first, each alone.
            runs = {(0, count), (1, count), *((i, i + 1) for i in range(count))} - {(1, 1)}
            if self._torchao:
                self._weights = {run: _torchao_weight(weight[self._rows(*run)]) for run in runs}
            else:
                whole = quantize_weight(weight, self._rotation)
                parts = {run: self._rows(*run) for run in runs}
                self._weights = {
                    run: Int8Weight(whole.values[rows], whole.scale[rows], whole.rotation)
                    for run, rows in parts.items()
                }
        self._seen = self._state()

    def compute(self, first: int, last: int, tokens: Tensor) -> Tensor:
        """Compute layers ``first`` to ``last - 1``: ``[..., in]`` -> ``[..., their outputs]``."""
        layers, kernel, weight = self.layers[first:last], self._kernel, self._weights[first, last]
        bias: Tensor | None = layers[0].bias
        if bias is not None and len(layers) > 1:
            bias = torch.cat([layer.bias for layer in layers])
        if isinstance(weight, Int8Weight):
            result = (weight_only_linear if kernel is None else kernel.linear)(tokens, weight, bias)
        else:
            assert kernel is not None
            linear, rows = torch.nn.functional.linear, self._rows(first, last)
            result = kernel.run(lambda: linear(tokens, weight, bias), lambda: linear(tokens, self.weight()[rows], bias))
        if kernel is None or not kernel.failure:
            self._count()
        return result

    def _rows(self, first: int, last: int) -> slice:
        return slice(sum(self._sizes[:first]), sum(self._sizes[:last]))

    def _state(self) -> tuple[object, ...]:
        return tuple((layer.weight.device, layer.weight.dtype) for layer in self.layers)


def _torchao_weight(weight: Tensor) -> Tensor:
    """Return torchao's int8 tensor for ``weight`` ``[out, in]``; `BackendUnavailable` if torchao is missing or old."""
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError as error:
        raise BackendUnavailable(
            "QuantizeInt8: implementation is torchao, which is not installed or too old.",
            "pip install --no-deps torchao",
        ) from error
    layer = Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = torch.nn.Parameter(weight.detach().clone(), requires_grad=False)
    holder = torch.nn.Sequential(layer)
    # Its own settings for inductor would be set for the whole process.
    quantize_(holder, Int8DynamicActivationInt8WeightConfig(set_inductor_config=False))
    return holder.get_parameter("0.weight")
