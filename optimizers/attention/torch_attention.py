"""Attention in torch: its own scaled dot-product attention, each of its kernels forced, and ``vanilla``, the formula.

Which calls each CUDA kernel takes is decided in torch's ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp``; the
limits here are that file's conditions for inference, the stricter one where they depend on the GPU or the version.
``sdpa_flash``: Dao 2023, arXiv 2307.08691. ``sdpa_efficient``: Rabe & Staats 2021, arXiv 2112.05682, by xFormers.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.devices import is_compiling
from .backend import CUDA, CUDA_HALF, HALVES, AttentionFunction, Backend, Inputs, Limits, Mask

NEGATIVE_INFINITY = float("-inf")

# A forced kernel is a flag of the whole process: threads that interleave (ComfyUI samples on several GPUs with threads)
# would leave it behind for good.
_KERNEL_FLAGS = threading.Lock()


def match_heads(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> tuple[Tensor, Tensor]:
    """Return k and v with as many heads as q; ValueError if they differ without ``enable_gqa``, or do not divide."""
    query_heads, key_heads = q.shape[1], k.shape[1]
    if query_heads == key_heads:
        return k, v
    if not enable_gqa or query_heads % key_heads:
        hint = "they must divide" if enable_gqa else "pass enable_gqa=True"
        raise ValueError(f"{query_heads} query heads for {key_heads} key heads: {hint}.")
    group = query_heads // key_heads
    return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


def slice_mask(mask: Mask, queries: slice) -> Mask:
    """Return the part of a broadcastable mask ``[..., queries or 1, keys or 1]`` that covers some queries."""
    return mask if mask is None or mask.shape[-2] == 1 else mask[..., queries, :]


def vanilla(inputs: Inputs) -> Tensor:
    """Vaswani et al. 2017 (arXiv 1706.03762), equation 1, as diffusers' ``AttnProcessor``; softmax always in fp32.

    The scale is applied inside of the matrix product (``alpha``), where the accumulator is fp32: fp16 scores overflow
    only if the *scaled* score exceeds 65504, and ``q * scale`` is not rounded. Rounding the scores to bf16 leaves a
    relative error of up to 0.009, a fused kernel 0.003 (random inputs); products in fp32 would cost the tensor cores.
    """
    q, k, v, mask, scale, enable_gqa = inputs
    k, v = match_heads(q, k, v, enable_gqa)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    nothing = q.new_zeros((1, 1, 1))  # with beta=0 it is not read; baddbmm is what takes a scale
    scores = torch.baddbmm(nothing, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), beta=0, alpha=scale)
    scores = scores.unflatten(0, q.shape[:2])  # [batch, heads, queries, keys]
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(mask.logical_not(), NEGATIVE_INFINITY)
    elif mask is not None:
        scores = scores + mask.to(scores.dtype)
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    if mask is not None:  # a query that may see no key gives zeros; NaN stays
        weights = weights.masked_fill(scores.amax(dim=-1, keepdim=True) == NEGATIVE_INFINITY, 0.0)
    return torch.matmul(weights.to(v.dtype), v)


def sdpa(inputs: Inputs) -> Tensor:
    """Torch's SDPA with the kernel that torch chooses.

    A query that may see no key gets zeros, but from cuDNN's kernel the mean of all values: torch 2.11 takes that kernel
    for half precision on an H100.
    """
    q, k, v, mask, scale, enable_gqa = inputs
    if mask is not None and mask.dtype not in (torch.bool, q.dtype):
        mask = mask.to(q.dtype)  # fused kernels refuse an additive mask of another dtype
    grouped = {"enable_gqa": True} if enable_gqa else {}  # torch before 2.5 does not know it
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, **grouped)


@cache
def forced(kernel_name: str) -> AttentionFunction:
    """Return ``sdpa`` restricted to one of torch's `SDPBackend`; ImportError or AttributeError where there is none."""
    from torch.nn.attention import SDPBackend, sdpa_kernel  # torch 2.3

    kernel = getattr(SDPBackend, kernel_name)
    # Of grouped queries, some torch versions' kernels take none.
    repeats = kernel_name in ("EFFICIENT_ATTENTION", "CUDNN_ATTENTION")

    def attention(inputs: Inputs) -> Tensor:
        if inputs.enable_gqa and repeats:
            k, v = match_heads(*inputs[:3], enable_gqa=True)
            inputs = inputs._replace(k=k, v=v, enable_gqa=False)
        # A lock cannot be traced; tracing is serialised by dynamo itself.
        with nullcontext() if is_compiling() else _KERNEL_FLAGS, sdpa_kernel(kernel):
            return sdpa(inputs)

    return attention


_CPU = Limits(devices=("cpu",), accepts_other_value_head_dim=False)
_EFFICIENT = replace(CUDA, dtypes=(torch.float32, *HALVES), head_dim_multiple_of=8, min_compute_capability=(5, 0))
# No masks: a row that may see no key does not surely give zeros.
_CUDNN = replace(CUDA_HALF, accepts_other_value_head_dim=True, min_key_tokens=2)

_KERNELS: tuple[tuple[str, str, tuple[Limits, ...]], ...] = (
    ("sdpa_flash", "FLASH_ATTENTION", (replace(CUDA_HALF, max_head_dim=256, head_dim_multiple_of=1), _CPU)),
    ("sdpa_efficient", "EFFICIENT_ATTENTION", (_EFFICIENT,)),
    ("sdpa_cudnn", "CUDNN_ATTENTION", (_CUDNN,)),
    ("sdpa_math", "MATH", (Limits(),)),
)

SDPA = Backend("sdpa", load=lambda: sdpa, limits=(CUDA, Limits()))
FORCED = tuple(Backend(name, load=partial(forced, kernel), limits=limits) for name, kernel, limits in _KERNELS)
VANILLA = Backend("vanilla", load=lambda: vanilla)
