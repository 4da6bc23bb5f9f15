"""``flash`` and ``flash3``: the flash-attn package and its build for Hopper GPUs.

Their tensors are ``[batch, tokens, heads, head_dim]``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from .backend import CUDA_MAX_BATCH, HALVES, AttentionFunction, Backend, Limits, Mask
from .scores import match_heads


def _wrap(kernel: Callable[..., Any]) -> AttentionFunction:
    def attention(
        q: Tensor, k: Tensor, v: Tensor, *, mask: Mask = None, scale: float | None = None, enable_gqa: bool = False
    ) -> Tensor:
        if mask is not None:
            raise ValueError("Flash attention takes no mask.")
        if not enable_gqa:
            match_heads(q, k, v, enable_gqa)  # the kernel itself would group unequal heads without being asked
        # [batch, heads, tokens, head_dim] -> [batch, tokens, heads, head_dim] and back
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = kernel(q, k, v, softmax_scale=scale, causal=False)
        out = out[0] if isinstance(out, tuple) else out  # early builds of FA3 return (out, logsumexp)
        result: Tensor = out.transpose(1, 2)
        return result

    return attention


@functools.cache
def load_flash2() -> AttentionFunction:
    """Import flash_attn and return its attention in the layout of ``AttentionFunction``."""
    from flash_attn import flash_attn_func

    return _wrap(flash_attn_func)


@functools.cache
def load_flash3() -> AttentionFunction:
    """Import flash_attn_interface (FlashAttention-3) and return it in the layout of ``AttentionFunction``."""
    from flash_attn_interface import flash_attn_func

    return _wrap(flash_attn_func)


_LIMITS = Limits(
    devices=("cuda",),
    dtypes=HALVES,
    max_head_dim=256,
    head_dim_multiple_of=8,
    max_batch=CUDA_MAX_BATCH,
    accepts_mask=False,
    accepts_other_value_head_dim=False,
    min_compute_capability=(8, 0),
)

BACKENDS = (
    Backend(
        name="flash",
        label="FlashAttention-2 (flash-attn)",
        limits=(_LIMITS,),
        load=load_flash2,
        source="Dao 2023, arXiv 2307.08691; github.com/Dao-AILab/flash-attention",
        module="flash_attn",
        package="flash-attn",
        install="install --no-deps --no-build-isolation flash-attn",
        install_note="It is compiled on your machine with the CUDA toolkit, for up to hours, unless a wheel for your "
        "torch is taken from its releases page.",
    ),
    Backend(
        name="flash3",
        label="FlashAttention-3 (Hopper)",
        limits=(replace(_LIMITS, min_compute_capability=(9, 0), max_compute_capability=(9, 0)),),
        load=load_flash3,
        source="Shah et al. 2024, arXiv 2407.08608; github.com/Dao-AILab/flash-attention, folder hopper",
        module="flash_attn_interface",
        package="flash_attn_3",
        install_note="It is built from the folder 'hopper' of github.com/Dao-AILab/flash-attention: python setup.py "
        "install.",
    ),
)
