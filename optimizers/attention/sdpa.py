"""torch's own scaled dot-product attention: its own choice of kernel, and each kernel forced.

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
from .backend import CUDA, CUDA_HALF, HALVES, AttentionFunction, Backend, Inputs, Limits
from .plain import match_heads

# A forced kernel is a flag of the whole process: threads that interleave (ComfyUI samples on several GPUs with threads)
# would leave it behind for good.
_KERNEL_FLAGS = threading.Lock()


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

BACKENDS = (
    Backend("sdpa", load=lambda: sdpa, limits=(CUDA, Limits())),
    *(Backend(name, load=partial(forced, kernel), limits=limits) for name, kernel, limits in _KERNELS),
)
