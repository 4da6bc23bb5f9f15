"""Ways to compute an int8 linear layer, what each one needs, and why it is not there when it is not.

All take floating point tokens and give floating point results; they quantise the tokens themselves (W8A8, dynamic).
Int32 sums are exact, so with the same scales in the same order all of them give the same bits; those of GPUs that fuse
the last steps differ in the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from .chunked import chunked_linear
from .rounding import Int8Weight, dequantize_weight, quantize_rows, rotate


class Kernel(ABC):
    """One way to compute an int8 linear layer.

    Attributes:
        name: what a report calls it.
        fast: whether it can be quicker than floating point; the reference is not.
    """

    name: ClassVar[str]
    fast: ClassVar[bool] = True

    @abstractmethod
    def reason(self, device: torch.device) -> str | None:
        """Return why it cannot run on ``device``, or None."""

    @abstractmethod
    def linear(self, x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        """Return ``[..., out]`` in the dtype of ``x`` ``[..., in]``; ``bias`` is ``[out]`` in that dtype."""


class ChunkedIntMM(Kernel):
    """``torch._int_mm``, a few hundred tokens at a time: on processors everything then stays in the cache."""

    name = "torch._int_mm in chunks"

    def reason(self, device: torch.device) -> str | None:
        """For processors only; old ones compute it without VNNI, which the timing shows."""
        if device.type != "cpu":
            return "for processors"
        return None if hasattr(torch, "_int_mm") else "this torch has no _int_mm"

    def linear(self, x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        """See ``chunked.chunked_linear``."""
        return chunked_linear(x, weight.values, weight.scale, bias, weight.rotation)


class Kitchen(Kernel):
    """comfy-kitchen's own dispatch: what ComfyUI runs without this pack. CUDA, Triton, HIP or its reference."""

    name = "comfy-kitchen"

    def reason(self, device: torch.device) -> str | None:
        """Say whether the package is there; its reference runs everywhere."""
        try:
            import comfy_kitchen  # noqa: F401
        except ImportError:
            return "comfy-kitchen is not installed"
        return None

    def slow_because(self, device: torch.device) -> str:
        """Return why its fast implementations are not used on ``device``; empty if one is, or on a processor."""
        from comfy_kitchen.registry import registry

        if device.type == "cpu":
            return ""
        backends = {name: state for name, state in registry.list_backends().items() if name != "eager"}
        found = {name: self.backend_reason(name, state) for name, state in backends.items()}
        if any(reason is None for reason in found.values()):
            return ""
        return "; ".join(f"{name}: {reason}" for name, reason in found.items())

    @staticmethod
    def backend_reason(name: str, state: dict[str, object]) -> str | None:
        """Return why one of its implementations is not used for int8 layers, in words."""
        if not state.get("available"):
            return str(state.get("unavailable_reason") or "not built")
        if "int8_linear" not in (state.get("capabilities") or ()):  # type: ignore[operator]
            return "needs a GPU of compute capability 7.5 or higher"
        if not state.get("disabled"):
            return None
        if name == "cuda":
            return "needs a torch for CUDA 13 (cu130) or newer"
        return "off: start ComfyUI with --enable-triton-backend" if name == "triton" else "switched off"

    def linear(self, x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        """Call comfy-kitchen's operator."""
        import comfy_kitchen

        product: Tensor = comfy_kitchen.int8_linear(
            x.contiguous(),
            weight.values,
            weight.scale,
            bias,
            x.dtype,
            convrot=bool(weight.rotation),
            convrot_groupsize=weight.rotation or 256,
        )
        return product


class TorchAO(Kernel):
    """torchao's scaled int8 product; see ``torchao_adapter``."""

    name = "torchao"

    def reason(self, device: torch.device) -> str | None:
        """Say whether torchao is there with the interface we know; not even looked for where it cannot be quicker."""
        if device.type == "cpu":
            return "on processors it is the same torch._int_mm, in more passes over memory"
        from .torchao_adapter import missing

        return missing()

    def linear(self, x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        """Quantise here, multiply there."""
        from .torchao_adapter import scaled_product

        tokens = rotate(x, weight.rotation) if weight.rotation else x
        values, scale = quantize_rows(tokens.reshape(-1, tokens.shape[-1]))
        out = scaled_product(values, weight.values.t(), scale).mul_(weight.scale.reshape(1, -1)).to(x.dtype)
        return (out if bias is None else out + bias).reshape(*x.shape[:-1], -1)


class Reference(Kernel):
    """Plain torch in floating point: slow, for checking the others."""

    name = "reference"
    fast = False

    def reason(self, device: torch.device) -> str | None:
        """Runs everywhere."""
        return None

    def linear(self, x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        """Multiply dequantised tokens with the dequantised weight, in float64."""
        tokens = rotate(x, weight.rotation) if weight.rotation else x
        values, scale = quantize_rows(tokens)
        exact = (values.double() * scale.double()) @ (weight.values.double() * weight.scale.double()).t()
        return (exact if bias is None else exact + bias.double()).to(x.dtype)


KERNELS: tuple[Kernel, ...] = (ChunkedIntMM(), Kitchen(), TorchAO(), Reference())


def kernel_named(name: str) -> Kernel:
    """Return the kernel whose ``name`` it is."""
    return next(kernel for kernel in KERNELS if kernel.name == name)


def available(device: torch.device) -> tuple[list[Kernel], dict[str, str]]:
    """Return the kernels that can run on ``device``, and for each other one why not."""
    reasons = {kernel.name: kernel.reason(device) for kernel in KERNELS}
    usable = [kernel for kernel in KERNELS if reasons[kernel.name] is None]
    return usable, {name: reason for name, reason in reasons.items() if reason is not None}


def weight_only_linear(x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
    """Return what a weight-only layer computes: floating point tokens, the dequantised weight."""
    return torch.nn.functional.linear(x, dequantize_weight(weight).to(x.dtype), bias)
