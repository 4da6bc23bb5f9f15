"""``flash`` and ``flash3``: github.com/Dao-AILab/flash-attention, and what is built from its folder ``hopper``.

Dao 2023, arXiv 2307.08691; Shah et al. 2024, arXiv 2407.08608. Their tensors are ``[batch, tokens, heads, head_dim]``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from torch import Tensor

from .backend import CUDA_HALF, AttentionFunction, Backend, Inputs
from .plain import match_heads


def _wrap(kernel: Callable[..., Any]) -> AttentionFunction:
    def attention(inputs: Inputs) -> Tensor:
        q, k, v, mask, scale, enable_gqa = inputs
        if mask is not None:
            raise ValueError("Flash attention takes no mask.")
        if not enable_gqa:
            match_heads(q, k, v, enable_gqa)  # the kernel itself would group unequal heads without being asked
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = kernel(q, k, v, softmax_scale=scale, causal=False)
        out = out[0] if isinstance(out, tuple) else out  # early builds of FA3 return (out, logsumexp)
        result: Tensor = out.transpose(1, 2)
        return result

    return attention


@cache
def load_flash2() -> AttentionFunction:
    """Import flash_attn and return its attention."""
    from flash_attn import flash_attn_func

    return _wrap(flash_attn_func)


@cache
def load_flash3() -> AttentionFunction:
    """Import flash_attn_interface (FlashAttention-3) and return it."""
    from flash_attn_interface import flash_attn_func

    return _wrap(flash_attn_func)


_LIMITS = replace(CUDA_HALF, max_head_dim=256)

BACKENDS = (
    Backend(
        name="flash",
        load=load_flash2,
        limits=(_LIMITS,),
        module="flash_attn",
        package="flash-attn",
        install="install --no-deps --no-build-isolation flash-attn",
        install_note="It is compiled on your machine with the CUDA toolkit, for up to hours, unless a wheel for your "
        "torch is taken from its releases page.",
    ),
    Backend(
        name="flash3",
        load=load_flash3,
        limits=(replace(_LIMITS, min_compute_capability=(9, 0), max_compute_capability=(9, 0)),),
        module="flash_attn_interface",
        package="flash_attn_3",
        install_note="It is built from the folder 'hopper' of github.com/Dao-AILab/flash-attention: python setup.py "
        "install.",
    ),
)
