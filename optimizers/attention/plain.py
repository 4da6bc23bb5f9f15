"""``vanilla``: exact attention in plain torch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import Backend, Inputs
from .scores import flat_heads, masked_scores, match_heads, softmax_or_zeros


def vanilla(inputs: Inputs) -> Tensor:
    """Vaswani et al. 2017 (arXiv 1706.03762), equation 1, as diffusers' ``AttnProcessor``; softmax always in fp32."""
    q, k, v, mask, scale, enable_gqa = inputs
    k, v = match_heads(q, k, v, enable_gqa)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = masked_scores(flat_heads(q), flat_heads(k), scale, mask, heads=q.shape[1])
    weights = softmax_or_zeros(scores, mask is not None).to(v.dtype)
    return torch.matmul(weights, v)


BACKENDS = (Backend("vanilla", load=lambda: vanilla),)
