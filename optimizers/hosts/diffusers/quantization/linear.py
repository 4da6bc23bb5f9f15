"""The int8 product that computes for linear layers, made anew from their weights whenever these have changed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .....core.errors import BackendUnavailable
from ....quantization.kernels import SafeKernel, weight_only_linear
from ....quantization.rounding import Int8Weight, quantize_weight
from .layers import Place


class Int8Product:
    """The int8 weights of one place. Any run of its layers can be computed: rows of a weight are scaled one by one.

    Args:
        place: what is computed.
        kernel: what computes it; None to compute with floating point tokens (weight only).
        rotation: as in ``Int8Weight``.
        torchao: whether torchao's ``quantize_`` makes and multiplies the weights.
        count: is called for each product in int8.
    """

    def __init__(
        self, place: Place, kernel: SafeKernel | None, rotation: int, torchao: bool, count: Callable[[], None]
    ) -> None:
        self.layers = place.layers
        self._place, self._kernel, self._rotation, self._torchao, self._count = place, kernel, rotation, torchao, count
        self._weights: dict[tuple[int, int], Int8Weight | Tensor] = {}
        self._seen: tuple[object, ...] = ()

    def quantize(self) -> None:
        """Make the int8 weights of the layers as they are now."""
        with torch.no_grad(), torch.inference_mode(False):
            weight, count = self._place.weight(), len(self.layers)
            # What fused projections ask for: everything, everything after the first, each alone.
            runs = {(0, count), (1, count), *((i, i + 1) for i in range(count))}
            runs = {(first, last) for first, last in runs if first < last}
            if self._torchao:
                self._weights = {run: _torchao_weight(weight[self._rows(*run)]) for run in runs}
            else:
                whole = quantize_weight(weight, self._rotation)
                self._weights = {
                    run: Int8Weight(whole.values[self._rows(*run)], whole.scale[self._rows(*run)], whole.rotation)
                    for run in runs
                }
        self._seen = self._state()

    @property
    def moved(self) -> bool:
        """Whether the layers are on another device, or in another dtype, than when they were quantised."""
        return self._seen != self._state()

    def __call__(self, tokens: Tensor, first: int, last: int) -> Tensor:
        """Compute layers ``first`` to ``last - 1``: ``[..., in]`` -> ``[..., their outputs]``."""
        layers = self.layers[first:last]
        bias: Tensor | None = layers[0].bias
        if bias is not None and len(layers) > 1:
            bias = torch.cat([layer.bias for layer in layers])
        result = self._computed(tokens, self._weights[first, last], bias, first, last)
        if self._kernel is None or not self._kernel.failure:
            self._count()
        return result

    def _computed(
        self, tokens: Tensor, weight: Int8Weight | Tensor, bias: Tensor | None, first: int, last: int
    ) -> Tensor:
        linear = torch.nn.functional.linear
        if self._kernel is None:
            assert isinstance(weight, Int8Weight)
            return weight_only_linear(tokens, weight, bias)
        if isinstance(weight, Int8Weight):
            return self._kernel.linear(tokens, weight, bias)
        floating = self._place.weight
        return self._kernel.run(
            lambda: linear(tokens, weight, bias), lambda: linear(tokens, floating()[self._rows(first, last)], bias)
        )

    def _rows(self, first: int, last: int) -> slice:
        sizes = [layer.out_features for layer in self.layers]
        return slice(sum(sizes[:first]), sum(sizes[:last]))

    def _state(self) -> tuple[object, ...]:
        return tuple((layer.weight.device, layer.weight.dtype) for layer in self.layers)


def _torchao_weight(weight: Tensor) -> Tensor:
    """Return torchao's int8 tensor for ``weight`` ``[out, in]``.

    Raises:
        BackendUnavailable: if torchao is missing or too old.
    """
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError as error:
        raise BackendUnavailable(
            "QuantizeInt8: implementation is torchao, which is not installed or too old.",
            "pip install --no-deps torchao",
        ) from error
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = torch.nn.Parameter(weight.detach().clone(), requires_grad=False)
    # Its own settings for inductor would be set for the whole process.
    holder = torch.nn.Sequential(layer)
    quantize_(holder, Int8DynamicActivationInt8WeightConfig(set_inductor_config=False))
    return holder.get_parameter("0.weight")
