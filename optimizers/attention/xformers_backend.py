"""``xformers``: memory_efficient_attention of the xformers package (tensors ``[batch, tokens, heads, head_dim]``).

Its compiled extension belongs to one torch release; without it the import only warns, so the probe makes a real call.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
from torch import Tensor

from .backend import CUDA, HALVES, AttentionFunction, Backend, Inputs
from .plain import NEGATIVE_INFINITY, match_heads

# xformers reads the bias in vectors of 16 bytes: rows must start at multiples of 8 (fp16) or 4 (fp32) elements.
BIAS_ALIGNMENT = 8


def tensor_bias(mask: Tensor, q: Tensor, keys: int) -> Tensor:
    """Return a mask (2 to 4 dimensions) as xformers' additive bias ``[batch, heads, queries, keys]``, rows aligned.

    Dimensions that broadcast stay views of stride 0, so that a bias per key does not become a full matrix.
    """
    while mask.dim() < 4:
        mask = mask.unsqueeze(0)
    aligned = -(-keys // BIAS_ALIGNMENT) * BIAS_ALIGNMENT
    bias = torch.zeros((*mask.shape[:3], aligned), dtype=q.dtype, device=q.device)[..., :keys]
    if mask.dtype == torch.bool:
        bias.masked_fill_(mask.logical_not(), NEGATIVE_INFINITY)
    else:
        bias.copy_(mask)
    return bias.expand(q.shape[0], q.shape[1], q.shape[2], keys)


@functools.cache
def load_xformers() -> AttentionFunction:
    """Import xformers and return its attention."""
    from xformers.ops import memory_efficient_attention

    def attention(inputs: Inputs) -> Tensor:
        q, k, v, mask, scale, enable_gqa = inputs
        k, v = match_heads(q, k, v, enable_gqa)
        bias = None if mask is None else tensor_bias(mask, q, k.shape[2])
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out: Tensor = memory_efficient_attention(q, k, v, attn_bias=bias, scale=scale)
        return out.transpose(1, 2)

    return attention


BACKENDS = (
    Backend(
        name="xformers",
        load=load_xformers,
        limits=(replace(CUDA, dtypes=(torch.float32, *HALVES), head_dim_multiple_of=8, min_compute_capability=(6, 0)),),
        module="xformers",
        package="xformers",
        install="install --no-deps xformers",
        install_note="Each xformers release is built for one torch release (0.0.35: torch 2.10); take the matching "
        "one.",
    ),
)
