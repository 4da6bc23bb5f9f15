"""The kernels that compute an int8 linear layer, their requirements, and why one cannot be used here.

All quantise the floating point tokens themselves (W8A8, dynamic). Int32 sums are exact, so with the same scales in the
same order all give the same bits, except GPU kernels that fuse the last steps.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import ClassVar

import torch
from torch import Tensor

from ...core.devices import is_out_of_memory
from ...core.errors import error_line
from .rounding import Int8Weight, quantize_rows, rotate

ROWS_PER_THREAD = 256
"""Tokens per chunk. On an AMX processor 64 was up to 1.4 times slower and 512 no quicker (320 to 10240 channels)."""


@lru_cache(maxsize=1)
def prefers_unsigned() -> bool:
    """Return whether to multiply unsigned numbers: on processors with VNNI but not AMX, where this torch can do it."""
    has = {name: getattr(torch.cpu, f"_is_{name}_supported", lambda: False)() for name in ("vnni", "amx_tile")}
    if not has["vnni"] or has["amx_tile"]:
        return False
    try:
        torch._int_mm(torch.ones(32, 32, dtype=torch.uint8), torch.ones(32, 32, dtype=torch.int8))
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _chunked(x: Tensor, values: Tensor, scale: Tensor, bias: Tensor | None, rotation: int) -> Tensor:
    tokens = rotate(x, rotation).reshape(-1, x.shape[-1])
    out = tokens.new_empty(len(tokens), len(values))
    columns, scale = values.t(), scale.reshape(1, -1)
    # VNNI multiplies unsigned with signed numbers: tokens + 128, and 128 times the sum of each weight row off again.
    correction = values.sum(1, dtype=torch.int32).mul_(128) if prefers_unsigned() else None
    rows = ROWS_PER_THREAD * torch.get_num_threads()
    for start in range(0, len(tokens), rows):
        quantized, token_scale = quantize_rows(tokens[start : start + rows])
        if correction is None:
            sums = torch._int_mm(quantized, columns)
        else:
            sums = torch._int_mm(quantized.bitwise_xor_(-128).view(torch.uint8), columns).sub_(correction)
        part = out[start : start + rows]
        if out.dtype == torch.float32:
            torch.mul(token_scale, scale, out=part)
            part.mul_(sums)
        else:
            part.copy_(sums.float().mul_(token_scale * scale))
        if bias is not None:
            part.add_(bias)
    return out.reshape(*x.shape[:-1], len(values))


# torch.compile sees one operator that it does not look into: no graph break, the same bits as without it.
@torch.library.custom_op("paceline::int8_linear", mutates_args=())
def _as_operator(x: Tensor, values: Tensor, scale: Tensor, bias: Tensor | None, rotation: int) -> Tensor:
    return _chunked(x, values, scale, bias, rotation)


@_as_operator.register_fake
def shape_of_linear(x: Tensor, values: Tensor, *rest: object) -> Tensor:
    """Return an empty tensor of the output's shape and dtype for a weight ``[out, in]``, for torch.compile."""
    return x.new_empty(*x.shape[:-1], values.shape[0])


class Kernel(ABC):
    """One way to compute an int8 linear layer.

    Attributes:
        name: in reports, and in the file of timings.
        needs: the function that it calls, as ``package.module:name``.
        not_on_cpu, not_on_gpu: why it is not used on processors, or on other devices; empty if it is.
        fast: whether it can be quicker than floating point; the reference is not.
    """

    name: ClassVar[str]
    needs: ClassVar[str]
    not_on_cpu: ClassVar[str] = ""
    not_on_gpu: ClassVar[str] = ""
    fast: ClassVar[bool] = True

    # Loaded before the first product, by `reason`: torch.compile could not trace the import.
    _function: Callable[..., Tensor] | None = None

    @property
    def function(self) -> Callable[..., Tensor]:
        """The function that ``needs`` names; ImportError without the package, AttributeError if it lacks it."""
        if self._function is None:
            module, _, name = self.needs.partition(":")
            self._function = getattr(import_module(module), name)
        return self._function

    def reason(self, device: torch.device) -> str | None:
        """Return why it cannot run on ``device``, or None."""
        found = self.not_on_cpu if device.type == "cpu" else self.not_on_gpu
        if found:
            return found
        package, _, path = self.needs.replace(":", ".").partition(".")
        package = package.replace("_", "-")
        try:
            self.function  # noqa: B018 - loading it is the question
        except ImportError:
            return f"{package} is not installed"
        except AttributeError:
            return f"this {package} has no {path}"
        return None

    @abstractmethod
    def linear(self, x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        """Return ``[..., out]`` in the dtype of ``x`` ``[..., in]``; ``bias`` is ``[out]`` in that dtype."""


class ChunkedIntMM(Kernel):
    """``torch._int_mm``, a few hundred tokens at a time, so that what one pass writes is in the cache for the next.

    The operations and their order are comfy-kitchen's, and so is every bit. Old processors do it without VNNI.
    """

    name = "torch._int_mm in chunks"
    needs = "torch:_int_mm"
    not_on_gpu = "for processors"

    def linear(self, x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        # A tensor of another class has no values: torch.compile or make_fx is tracing.
        traced = torch.compiler.is_compiling() or type(x) is not Tensor
        compute: Callable[..., Tensor] = _as_operator if traced else _chunked
        return compute(x, weight.values, weight.scale, bias, weight.rotation)


class Kitchen(Kernel):
    """comfy-kitchen's own dispatch, which ComfyUI uses without this pack: CUDA, Triton, HIP or its reference."""

    name = "comfy-kitchen"
    needs = "comfy_kitchen:int8_linear"

    def slow_because(self, device: torch.device) -> str:
        """Return why its fast implementations are not used on ``device``; empty if one is, or on a processor."""
        from comfy_kitchen.registry import registry

        if device.type == "cpu":
            return ""
        backends = registry.list_backends().items()
        found = {name: self.backend_reason(name, state) for name, state in backends if name != "eager"}
        if None in found.values():
            return ""
        return "; ".join(f"{name}: {reason}" for name, reason in found.items())

    @staticmethod
    def backend_reason(name: str, state: Mapping[str, object]) -> str | None:
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
        # In compiled code through an operator of ours: comfy-kitchen's dispatch cannot be traced.
        if torch.compiler.is_compiling():
            result: Tensor = torch.ops.paceline.kitchen_linear(x, weight.values, weight.scale, bias, weight.rotation)
            return result
        return self.function(
            x.contiguous(),
            weight.values,
            weight.scale,
            bias,
            x.dtype,
            convrot=bool(weight.rotation),
            convrot_groupsize=weight.rotation or 256,
        )


@torch.library.custom_op("paceline::kitchen_linear", mutates_args=())
def _kitchen_linear(x: Tensor, values: Tensor, scale: Tensor, bias: Tensor | None, rotation: int) -> Tensor:
    return Kitchen().linear(x, Int8Weight(values, scale, rotation), bias)


_kitchen_linear.register_fake(shape_of_linear)


class TorchAO(Kernel):
    """torchao's scaled int8 product: ``int8 [tokens, in] @ int8 [in, out] * float32 [tokens, 1]``."""

    name = "torchao"
    needs = "torchao.kernel.intmm:int_scaled_matmul"
    not_on_cpu = "on processors it is the same torch._int_mm, in more passes over memory"

    def linear(self, x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        values, scale = quantize_rows(rotate(x, weight.rotation).reshape(-1, x.shape[-1]))
        product = self.function(values.contiguous(), weight.values.t().contiguous(), scale)
        out = product.mul_(weight.scale.reshape(1, -1)).to(x.dtype)
        return (out if bias is None else out + bias).reshape(*x.shape[:-1], -1)


class Reference(Kernel):
    """Dequantised tokens and weight in float64: slow, for checking the others."""

    name = "reference"
    needs = "torch:matmul"
    fast = False

    def linear(self, x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        values, scale = quantize_rows(rotate(x, weight.rotation))
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


class SafeKernel:
    """A kernel at work in one model, until it raises: from then on the model's int8 layers compute in floating point.

    An error that comes once would come again in each of hundreds of layers and in each call, so it is remembered in
    ``failure``. Running out of memory says nothing about the kernel and is always raised; inside of compiled code every
    error is, as nothing can be caught there.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.failure = ""

    def run(self, product: Callable[[], Tensor], instead: Callable[[], Tensor]) -> Tensor:
        """Return what ``product`` computes with the kernel, or ``instead`` in floating point once it has failed.

        Raises RuntimeError if memory runs out.
        """
        if not self.failure:
            if torch.compiler.is_compiling():
                return product()
            try:
                return product()
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                self.failure = f"{self.kernel.name} failed ({error_line(error)}): computed in floating point"
                logging.warning("Paceline: int8: %s", self.failure)
        return instead()
