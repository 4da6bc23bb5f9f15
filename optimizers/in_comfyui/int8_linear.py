"""ComfyUI's own quantised linear layer, which counts, computes weight only in floating point, and can be compiled.

ComfyUI's class has ``_forward`` for the product alone, after casting: a subclass inherits everything else, and nothing
is patched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..core.activity import Activity
from ..core.errors import UnsupportedModel
from ..core.not_copied import Function, Kwargs
from ..quantization.int8_policy import LAYERS
from ..quantization.layer_choice import Int8Weight, quantize_weight

FORMAT = "int8_tensorwise"
LAYOUT = "TensorWiseINT8Layout"
MODEL_PREFIX = "diffusion_model."
"""Of the network in the names of a whole model."""
KERNEL = "comfy-kitchen"
"""What computes the product, for reports and the file of times."""

OFFLOADED = "a LoRA on a layer that is not loaded: computed in full precision"
FLOATING = "ComfyUI handed over the weight in floating point: computed in full precision"


@dataclass(eq=False)
class Network:
    """What all int8 layers of one network share: where they count, and whether it is sampled with at the moment."""

    activity: Activity = field(default_factory=Activity)
    in_run: bool = False


def int8_layers(network: Module) -> list[Any]:
    """Return the linear layers of a network in ComfyUI's int8 format, of a class that is no ``torch.nn.Linear``."""
    linear = (module for module in network.modules() if hasattr(module, "in_features"))
    return [module for module in linear if getattr(getattr(module, "weight", None), "_layout_cls", None) == LAYOUT]


# torch.compile cannot look into ComfyUI's quantised tensors, but it hands them to operators: no graph break.
@torch.library.custom_op("paceline::quantized_linear", mutates_args=())
def _quantized_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    raise TypeError(f"the weight is a {type(weight).__name__}, not one of ComfyUI's quantised tensors")


@_quantized_linear.register_fake
def _shape_of_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _as_kitchen_does(_: object, args: tuple[Tensor, Any, Tensor | None], kwargs: Kwargs) -> Tensor:
    """Compute our operator for a quantised tensor: what its class calls while and after torch.compile traces."""
    return torch.nn.functional.linear(*args)


@lru_cache(maxsize=8)
def linear_class(compute_dtype: torch.dtype) -> type:
    """Return the class of quantised layers that compute in ``compute_dtype``."""
    import comfy.ops
    from comfy.quant_ops import QuantizedTensor, get_layout_class
    from comfy_kitchen.tensor import register_layout_op

    register_layout_op(torch.ops.paceline.quantized_linear.default, get_layout_class(LAYOUT))(_as_kitchen_does)

    class Int8Linear(comfy.ops.mixed_precision_ops({}, compute_dtype).Linear):  # type: ignore[misc]
        """A quantised linear layer. ``weight_only``: in floating point."""

        weight_only = False
        network: Network

        def state_dict(self, *args: Any, prefix: str = "", **kwargs: Any) -> Any:
            """Give the weight as one tensor, which is floating point for whoever computes with it.

            Its numbers and scales apart, as ComfyUI's own layers give them, are for files, which are written from the
            network's dictionary when nothing is sampled. Whoever reads these numbers as a weight gets noise:
            Control-LoRA while a run begins, merging and extracting LoRAs through the model's dictionary.
            """
            found = super().state_dict(*args, prefix=prefix, **kwargs)
            is_read = self.network.in_run or prefix.startswith(MODEL_PREFIX)
            if is_read and isinstance(self.weight, QuantizedTensor):
                for name in (f"{prefix}comfy_quant", *self.weight.state_dict(f"{prefix}weight")):
                    found.pop(name, None)
                found[f"{prefix}weight"] = self.weight
            return found

        def set_weight(self, weight: Tensor, inplace_update: bool = False, **options: Any) -> Any:
            if inplace_update:  # from a hook; afterwards ComfyUI would put the int8 values back, but not their scales
                raise UnsupportedModel(
                    "A LoRA hook of this conditioning changes layers that Quantize int8 has put in int8, whose weights "
                    "cannot be changed while they are sampled with.",
                    "Load the LoRA with Load LoRA instead, or exclude its layers in Quantize int8.",
                )
            return super().set_weight(weight, **options)

        def _forward(self, input: Tensor, weight: Any, bias: Tensor | None) -> Any:
            left = ""
            if not (isinstance(weight, QuantizedTensor) and weight._layout_cls == LAYOUT):
                left = OFFLOADED if self.weight_function else "" if self.weight_only else FLOATING
                result = super()._forward(input, weight, bias)
            elif self.weight_only:
                # ComfyUI's dispatch would quantise the tokens all the same, whatever full_precision_matrix_mult says.
                result = torch.nn.functional.linear(input, weight.dequantize().to(input.dtype), bias)
            elif torch.compiler.is_compiling():
                result = torch.ops.paceline.quantized_linear(input, weight, bias)
            else:
                result = super()._forward(input, weight, bias)  # ComfyUI's own dispatch
            if left:
                self.network.activity.fall_back(left)
            else:
                self.network.activity.use(LAYERS)
            return result

        def _apply(self, fn: Function, recurse: bool = True) -> Any:
            # ComfyUI unloads models inside and outside of inference mode. A quantised tensor that was made outside
            # cannot become a parameter inside, so it is always made inside.
            with torch.inference_mode():
                weight = self._parameters.get("weight")
                if isinstance(weight, QuantizedTensor) and not weight.is_inference():
                    inside = QuantizedTensor(weight._qdata, weight._layout_cls, weight._params)
                    self._parameters["weight"] = torch.nn.Parameter(inside, requires_grad=False)
                return super()._apply(fn, recurse)

    return Int8Linear


@torch.inference_mode()
def quantized_linear(
    weight: Int8Weight,
    bias: Tensor | None,
    compute_dtype: torch.dtype,
    weight_only: bool = False,
    network: Network | None = None,
) -> Module:
    """Return a new layer, with what ComfyUI's files carry for each quantised layer.

    ``weight``: int8 ``[out, in]``, on the device the layer rests on. ``bias``: ``[out]``; copied. ``compute_dtype``: of
    its inputs and outputs. ``weight_only``: compute the product in floating point. ``network``: what all layers of its
    network share.
    """
    import comfy.model_management

    settings: dict[str, object] = {"format": FORMAT}
    if weight_only:
        settings["full_precision_matrix_mult"] = True
    state = {
        "weight": weight.values,
        "weight_scale": weight.scale,
        "comfy_quant": torch.frombuffer(bytearray(json.dumps(settings).encode()), dtype=torch.uint8),
    }
    if bias is not None:
        state["bias"] = bias.detach()
    outputs, inputs = weight.values.shape
    layer: Any = linear_class(compute_dtype)(
        inputs, outputs, bias=bias is not None, device=weight.values.device, dtype=compute_dtype
    )
    layer.load_state_dict(state, strict=False)
    layer.weight_only, layer.network = weight_only, network or Network()
    layer.requires_grad_(False).train(False)
    comfy.model_management.archive_model_dtypes(layer)
    result: Module = layer
    return result


@torch.inference_mode()
def both_layers(weight: Tensor, bias: Tensor) -> tuple[Module, Module]:
    """Return ComfyUI's layer with ``weight`` ``[out, in]`` in the dtype of ``bias``, and ours in int8."""
    import comfy.ops

    outputs, inputs = weight.shape
    plain = comfy.ops.disable_weight_init.Linear(inputs, outputs, device=weight.device, dtype=bias.dtype)
    plain.weight, plain.bias = (torch.nn.Parameter(tensor, requires_grad=False) for tensor in (weight.to(bias), bias))
    return plain, quantized_linear(quantize_weight(weight), bias, bias.dtype)


# ComfyUI's function for a layer together with the activation before it, and its activations by their names there.
_TOGETHER, _ACTIVATIONS = "linear_input_act", "INPUT_ACT_EAGER"


def modules_together(network: Module) -> Iterator[tuple[Module, MethodType]]:
    """Yield modules whose int8 layers ComfyUI computes with the activation before them, with a ``forward`` for both.

    ComfyUI 0.33 and newer does, past the layer's own code: it quantises the tokens of every layer in int8, weight-only
    ones too, by comfy-kitchen's dispatch, which torch.compile cannot trace.
    """
    for module in network.modules():
        forward: Any = type(module).forward
        code = getattr(forward, "__code__", None)
        if code is not None and _TOGETHER in code.co_names and int8_layers(module):
            yield module, MethodType(_one_after_the_other(forward), module)


@cache
def _one_after_the_other(forward: FunctionType) -> FunctionType:
    """Return a copy of ``forward`` that computes the activation, then calls the layer."""
    import comfy

    def asking(linear: Any, x: Tensor, input_act: str) -> Tensor:
        result: Tensor = linear(getattr(comfy.ops, _ACTIVATIONS)[input_act](x))
        return result

    ops = SimpleNamespace(**{**vars(comfy.ops), _TOGETHER: asking})
    names = {**forward.__globals__, "comfy": SimpleNamespace(**{**vars(comfy), "ops": ops})}
    names.pop("__name__", None)  # torch would look in that module for the function
    copy = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    copy.__kwdefaults__ = forward.__kwdefaults__
    return copy
