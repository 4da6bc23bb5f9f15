"""``vanilla``: the textbook formula, with the whole score matrix in memory.

Vaswani et al. 2017, arXiv 1706.03762, equation 1; the operations of diffusers' default ``AttnProcessor`` (a scaled
batched matrix product, softmax, a second product) except that the softmax always runs in fp32 (diffusers: only with
``upcast_softmax``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import Backend, Limits, Mask
from .scores import flat_heads, masked_scores, match_heads, softmax_or_zeros


def vanilla(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Mask = None, scale: float | None = None, enable_gqa: bool = False
) -> Tensor:
    """Attention as written in the paper; shapes, mask and errors as in ``AttentionFunction``."""
    k, v = match_heads(q, k, v, enable_gqa)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = masked_scores(flat_heads(q), flat_heads(k), scale, mask, heads=q.shape[1])
    weights = softmax_or_zeros(scores, mask is not None).to(v.dtype)
    return torch.matmul(weights, v)


BACKENDS = (
    Backend(
        name="vanilla",
        label="Vanilla (full score matrix)",
        limits=(Limits(),),
        load=lambda: vanilla,
        source="Vaswani et al. 2017, arXiv 1706.03762; diffusers AttnProcessor",
    ),
)
