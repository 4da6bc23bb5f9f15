"""What has to be true of ComfyUI's layers before their weights are joined, and joining quantised weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from ....qkv_fusion import join_rows, refuse_rows

OTHER_FORWARD = "another node has changed how its projections compute (a LoRA in bypass mode, for example)"
STREAMED = "dynamic VRAM brings in the weights of each layer one by one (--disable-dynamic-vram loads the whole model)"
PATCHED_IN_PASSING = "a LoRA is applied to its weights at each use, because the model is only partly loaded"
ELSEWHERE = "its weights are not on the device, because the model is only partly loaded"
UNEQUAL = "some of its projections are quantised and others are not, or differently"

# What decides how a layer of ComfyUI computes; it must be the same for all that are computed together.
_SETTINGS = ("comfy_cast_weights", "comfy_force_cast_weights", "_full_precision_mm", "layout_type", "quant_format")
# Corrections of a layer's input that each layer has for itself (AWQ, static activation scales).
_OF_ITS_OWN = ("pre_quant_scale", "input_scale")


def settings(layer: Any) -> tuple[Any, ...]:
    """Return what ComfyUI's loading may change in how a layer computes. Quick: it is asked for in every model call."""
    state = layer.__dict__
    return (state.get("comfy_cast_weights"), state.get("comfy_force_cast_weights"))


def passing_obstacle(layer: Any, device: torch.device) -> str | None:
    """Return why a layer's weights cannot be used directly in the coming call, or None. Quick, see ``settings``."""
    state = layer.__dict__
    if "forward" in state or state["_forward_pre_hooks"] or state["_forward_hooks"]:
        return OTHER_FORWARD
    if "_v" in state:
        return STREAMED
    if state.get("weight_function") or state.get("bias_function"):
        return PATCHED_IN_PASSING
    weight = state["_parameters"]["weight"]
    return ELSEWHERE if weight is None or weight.device != device else None


def lasting_obstacle(layers: Sequence[Any]) -> str | None:
    """Return why these layers cannot compute together with the weights they have, or None."""
    first = layers[0]
    if any(type(layer) is not type(first) for layer in layers) or any(
        getattr(layer, name, None) != getattr(first, name, None) for layer in layers for name in _SETTINGS
    ):
        return UNEQUAL
    if any(getattr(layer, name, None) is not None for layer in layers for name in _OF_ITS_OWN):
        return "its projections scale their input each in its own way"
    biases = [layer.bias for layer in layers]
    if any((bias is None) != (biases[0] is None) for bias in biases):
        return "some of its projections have a bias and others do not"
    reason = _refuse_weights([layer.weight for layer in layers])
    return reason if reason is not None or biases[0] is None else refuse_rows(biases)


def _is_int8(weight: Any) -> bool:
    return getattr(weight, "_layout_cls", None) == "TensorWiseINT8Layout"


def _refuse_weights(weights: Sequence[Any]) -> str | None:
    if len({id(weight) for weight in weights}) < len(weights):
        return "two of its projections are one and the same"
    kinds = {type(weight) for weight in weights}
    if kinds == {torch.nn.Parameter}:
        return refuse_rows(weights)
    if not all(_is_int8(weight) for weight in weights):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        return UNEQUAL if len(kinds) > 1 else f"weights of the class {names} cannot be joined"
    first = weights[0]._params
    for weight in weights:
        params = weight._params
        same = ("orig_dtype", "is_weight", "convrot", "convrot_groupsize", "transposed")
        if any(getattr(params, name, None) != getattr(first, name, None) for name in same):
            return UNEQUAL
        if params.scale.ndim != 2:
            return "its weights have one scale for the whole matrix instead of one for each row"
    return refuse_rows([weight._qdata for weight in weights]) or refuse_rows([w._params.scale for w in weights])


def join_weights(weights: Sequence[Any]) -> Any:
    """Return one weight of all rows that shares its memory with ``weights``: see ``join_rows``.

    Rows of ``int8_tensorwise`` weights have scales of their own, so they stay exactly what they were.
    """
    if not _is_int8(weights[0]):
        return join_rows(weights)
    qdata = join_rows([weight._qdata for weight in weights])
    scale = join_rows([weight._params.scale for weight in weights])
    params = dataclasses.replace(weights[0]._params, scale=scale, orig_shape=tuple(qdata.shape))
    return type(weights[0])(qdata, weights[0]._layout_cls, params)
