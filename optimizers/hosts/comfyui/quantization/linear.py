"""ComfyUI's own quantised linear layer, with the product computed by the kernel that is fastest here.

Everything but the product is inherited: loading, LoRA (requantised), partial loading, dynamic VRAM, saving. ComfyUI's
class has ``_forward`` for the product alone, after casting, so a subclass of our own is enough and nothing is patched.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ....quantization.kernels import Kernel, Kitchen, kernel_named
from ....quantization.rounding import Int8Weight

FORMAT = "int8_tensorwise"
LAYOUT = "TensorWiseINT8Layout"


def comfy_quant(rotation: int, weight_only: bool) -> dict[str, Any]:
    """Return the settings that ComfyUI's files carry for each quantised layer."""
    settings: dict[str, Any] = {"format": FORMAT}
    if rotation:
        settings |= {"convrot": True, "convrot_groupsize": rotation}
    if weight_only:
        settings["full_precision_matrix_mult"] = True
    return settings


def is_int8(module: Any) -> bool:
    """Return whether a module is a linear layer in ComfyUI's int8 format."""
    weight = getattr(module, "weight", None)
    return getattr(weight, "_layout_cls", None) == LAYOUT and hasattr(module, "in_features")


# torch.compile cannot look into ComfyUI's quantised tensors, but it hands them to operators.
@torch.library.custom_op("paceline::quantized_linear", mutates_args=())
def _quantized_linear(x: Tensor, weight: Tensor, bias: Tensor | None, kernel: str) -> Tensor:
    raise TypeError(f"the weight is a {type(weight).__name__}, not one of ComfyUI's quantised tensors")


@_quantized_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, kernel: str) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _with_parts(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Compute our operator for a quantised tensor: what its class calls while and after torch.compile traces."""
    x, weight, bias, kernel = args
    return kernel_named(kernel).linear(x, _parts(weight), bias)


def _parts(weight: Any) -> Int8Weight:
    params = weight._params
    return Int8Weight(weight._qdata, params.scale, params.convrot_groupsize if params.convrot else 0)


@lru_cache(maxsize=8)
def linear_class(compute_dtype: torch.dtype) -> type:
    """Return the class of quantised layers that compute in ``compute_dtype``."""
    import comfy.ops
    from comfy.quant_ops import QuantizedTensor, get_layout_class
    from comfy_kitchen.tensor import register_layout_op

    register_layout_op(torch.ops.paceline.quantized_linear.default, get_layout_class(LAYOUT))(_with_parts)

    class Int8Linear(comfy.ops.mixed_precision_ops({}, compute_dtype).Linear):  # type: ignore[misc]
        """A quantised linear layer. ``kernel`` is None where ComfyUI's own dispatch is the fastest."""

        kernel: Kernel | None = None
        weight_only = False

        def _forward(self, input: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> Any:
            quantized = isinstance(weight, QuantizedTensor) and weight._layout_cls == LAYOUT
            if self.weight_only and quantized:
                # ComfyUI's dispatch would quantise the tokens all the same, whatever full_precision_matrix_mult says.
                return torch.nn.functional.linear(input, weight.dequantize().to(input.dtype), bias)
            if self.kernel is None or not quantized:
                return super()._forward(input, weight, bias)
            if torch.compiler.is_compiling():
                return torch.ops.paceline.quantized_linear(input, weight, bias, self.kernel.name)
            return self.kernel.linear(input, _parts(weight), bias)

        def _apply(self, fn: Any, recurse: bool = True) -> Any:
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
    module: Any, weight: Int8Weight, compute_dtype: torch.dtype, kernel: Kernel | None, weight_only: bool
) -> Any:
    """Return a layer that takes the place of ``module``, which stays as it is.

    Args:
        module: a linear layer; its bias is copied.
        weight: in int8, on the device the layer rests on.
        compute_dtype: of its inputs and outputs.
        kernel: what computes the product; ignored if ``weight_only``.
        weight_only: whether the product is to be in floating point.
    """
    import comfy.model_management

    settings = json.dumps(comfy_quant(weight.rotation, weight_only)).encode()
    state = {
        "weight": weight.values,
        "weight_scale": weight.scale,
        "comfy_quant": torch.frombuffer(bytearray(settings), dtype=torch.uint8),
    }
    if module.bias is not None:
        state["bias"] = module.bias.detach()
    layer = linear_class(compute_dtype)(
        module.in_features,
        module.out_features,
        bias=module.bias is not None,
        device=weight.values.device,
        dtype=compute_dtype,
    )
    layer.load_state_dict(state, strict=False)
    layer.kernel = None if isinstance(kernel, Kitchen) else kernel
    layer.weight_only = weight_only
    layer.requires_grad_(False).train(False)
    comfy.model_management.archive_model_dtypes(layer)
    return layer


def existing_weight(module: Any) -> tuple[Int8Weight, bool]:
    """Return the weight of a layer that is in ComfyUI's int8 format already, and whether it is weight-only."""
    return _parts(module.weight), bool(module._full_precision_mm_config)
