"""``vanilla``: exact attention in plain torch, on any device; and what other backends use too.

The scale is applied inside of the matrix product (``alpha``), where the accumulator is fp32: fp16 scores overflow only
if the *scaled* score exceeds 65504, and ``q * scale`` is not rounded. Rounding the scores to bf16 leaves a relative
error of up to 0.009, a fused kernel 0.003 (random inputs); products in fp32 would cost the tensor cores.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import Backend, Inputs, Mask

NEGATIVE_INFINITY = float("-inf")


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
    """Vaswani et al. 2017 (arXiv 1706.03762), equation 1, as diffusers' ``AttnProcessor``; softmax always in fp32."""
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


BACKENDS = (Backend("vanilla", load=lambda: vanilla),)
