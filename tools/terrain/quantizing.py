"""The terrain model with linear layers in int8, computed as ComfyUI would; 1x1 convolutions count as linear."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from paceline.optimizers.quantization.kernels import Reference
from paceline.optimizers.quantization.layers import Chooser, Layer, LayerChoice
from paceline.optimizers.quantization.rounding import Int8Weight, quantize_rows, quantize_weight
from paceline.optimizers.quantization.settings import QuantizationSettings
from paceline.optimizers.quantization.timing import Shape, Timing
from torch import Tensor, nn

from . import network

Weights = dict[str, Int8Weight]
KERNEL = Reference()


def linear_layers(model: network.TerrainUNet) -> dict[str, nn.Module]:
    """Return linear layers and 1x1 convolutions by name."""
    return {name: module for name, module in model.named_modules() if _is_linear(module)}


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1))


def matrix(layer: nn.Module) -> Tensor:
    """Return a layer's weight ``[out, in]``."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return weight.detach().flatten(1)


def everything(model: network.TerrainUNet) -> Weights:
    """Return every linear layer in int8 with a scale for each row, as a recipe does that looks at nothing."""
    return {name: quantize_weight(matrix(layer)) for name, layer in linear_layers(model).items()}


def everything_tensorwise(model: network.TerrainUNet) -> Weights:
    """Return every linear layer in int8 with one scale for each weight."""
    found = {}
    for name, layer in linear_layers(model).items():
        values, scale = quantize_rows(matrix(layer).reshape(1, -1))
        shape = matrix(layer).shape
        found[name] = Int8Weight(values.reshape(shape), scale.expand(shape[0], 1).contiguous())
    return found


def chosen(model: network.TerrainUNet, preset: str, pictures: range) -> tuple[Weights, list[LayerChoice]]:
    """Return the layers that Quantize int8 chooses where int8 is twice as quick, seeing what ``pictures`` show."""
    seen = observe(model, pictures)
    chooser = Chooser(QuantizationSettings(preset=preset), _twice_as_quick, seen, torch.device("cpu"))
    choices = []
    for name, module in linear_layers(model).items():
        weight = matrix(module)
        rows = 10**6 if name not in seen else len(seen[name])
        # The network is convolutional but for its attention: what is named otherwise has one token for each picture.
        layer = Layer.of(name, weight, rows)
        choices.append(chooser.choose(layer, lambda weight=weight: weight))
    return {each.layer.name: each.weight for each in choices if each.weight is not None}, choices


def _twice_as_quick(_: Shape) -> Timing:
    return Timing(2.0, 1.0)


def observe(model: network.TerrainUNet, pictures: range) -> dict[str, Tensor]:
    """Return some of the tokens that each layer is given while drawing."""
    seen: dict[str, Tensor] = {}

    def keep(name: str, tokens: Tensor) -> None:
        rows = tokens.reshape(-1, tokens.shape[-1])
        seen[name] = rows[:: max(1, len(rows) // 256)][:256].clone()

    with _intercepted(model, lambda name, tokens, plain: (keep(name, tokens), plain(tokens))[1]):
        network.draw(model, pictures)
    return seen


@contextmanager
def quantized(model: network.TerrainUNet, weights: Weights) -> Iterator[None]:
    """Compute these layers in int8 while the context lasts."""

    def compute(name: str, tokens: Tensor, plain: object) -> Tensor:
        weight = weights.get(name)
        if weight is None:
            return plain(tokens)  # type: ignore[operator, no-any-return]
        bias: Tensor = model.get_submodule(name).bias  # type: ignore[assignment]
        return KERNEL.linear(tokens, weight, bias)

    with _intercepted(model, compute):
        yield


@contextmanager
def _intercepted(model: network.TerrainUNet, compute: object) -> Iterator[None]:
    """Call ``compute(name, tokens [..., in], plain)`` instead of each linear layer."""
    names = {module: name for name, module in linear_layers(model).items()}
    attention = {layer for block in model.attentions for layer in (block.qkv, block.proj_out)}

    def run(module: nn.Module, tokens: Tensor) -> Tensor:
        def plain(x: Tensor) -> Tensor:
            return nn.functional.linear(x, matrix(module), module.bias)  # type: ignore[arg-type]

        return compute(names[module], tokens, plain)  # type: ignore[operator, no-any-return]

    def hook(module: nn.Module, args: tuple[Tensor, ...], _: Tensor) -> Tensor:
        if isinstance(module, nn.Linear):
            return run(module, args[0])
        return run(module, args[0].movedim(1, -1)).movedim(-1, 1).contiguous()

    def attend(block: network.SelfAttention, tokens: Tensor, _: network.Place) -> Tensor:
        query, key, value = run(block.qkv, tokens).chunk(3, dim=-1)
        split = [x.unflatten(-1, (-1, network.HEAD)).transpose(1, 2) for x in (query, key, value)]
        mixed = nn.functional.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)
        return run(block.proj_out, mixed)

    hooks = [module.register_forward_hook(hook) for module in names if module not in attention]
    model.set_hook(attend)
    try:
        yield
    finally:
        model.set_hook(None)
        for handle in hooks:
            handle.remove()
