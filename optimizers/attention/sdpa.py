"""torch's own scaled dot-product attention: its own choice of kernel, and each kernel forced.

Which calls each CUDA kernel takes is decided in torch's ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp``; the
limits here are that file's conditions for inference, the stricter one where they depend on the GPU or the version.
``sdpa_flash``: Dao 2023, arXiv 2307.08691. ``sdpa_efficient``: Rabe & Staats 2021, arXiv 2112.05682, by xFormers.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.devices import is_compiling
from .backend import CUDA, CUDA_HALF, HALVES, AttentionFunction, Backend, Inputs, Limits
from .scores import match_heads

try:
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:  # torch before 2.3: only compiled code needs it
    SDPBackend = sdpa_kernel = None  # type: ignore[assignment, misc]

# Forcing a kernel saves, changes and restores flags of the whole process. Two threads that interleave (ComfyUI samples
# on several GPUs with threads) would restore each other's forced state and leave it behind for good.
_KERNEL_FLAGS = threading.Lock()

_SWITCHES = {
    "FLASH_ATTENTION": "flash",
    "EFFICIENT_ATTENTION": "mem_efficient",
    "MATH": "math",
    "CUDNN_ATTENTION": "cudnn",
}
"""The name of each kernel in torch.backends.cuda."""


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
def forced(kernel_name: str, repeat_heads: bool) -> AttentionFunction:
    """Return ``sdpa`` restricted to one `SDPBackend`; AttributeError if this torch has no such kernel.

    ``repeat_heads``: repeat key heads for grouped queries here, where some torch versions' kernel does not take them.
    """
    kernel: Any = None if SDPBackend is None else getattr(SDPBackend, kernel_name)
    flags = torch.backends.cuda
    switches = [
        (name == kernel_name, getattr(flags, f"{switch}_sdp_enabled"), getattr(flags, f"enable_{switch}_sdp"))
        for name, switch in _SWITCHES.items()
        if hasattr(flags, f"enable_{switch}_sdp")
    ]

    def attention(inputs: Inputs) -> Tensor:
        if inputs.enable_gqa and repeat_heads:
            q, k, v, mask, scale, _ = inputs
            inputs = Inputs(q, *match_heads(q, k, v, True), mask, scale)
        if is_compiling():  # a lock cannot be traced; tracing is serialised by dynamo itself
            with sdpa_kernel(kernel):
                return sdpa(inputs)
        # The same as sdpa_kernel in an eighth of its time: this runs in every attention call.
        with _KERNEL_FLAGS:
            changed = [(wanted, switch) for wanted, is_on, switch in switches if is_on() != wanted]
            try:
                for wanted, switch in changed:
                    switch(wanted)
                return sdpa(inputs)
            finally:
                for wanted, switch in changed:
                    switch(not wanted)

    attention.__name__ = f"sdpa_{kernel_name.lower()}"
    return attention


BACKENDS = (
    Backend("sdpa", load=lambda: sdpa, limits=(CUDA, Limits())),
    Backend(
        "sdpa_flash",
        load=partial(forced, "FLASH_ATTENTION", repeat_heads=False),
        limits=(
            replace(CUDA_HALF, max_head_dim=256, head_dim_multiple_of=1),
            Limits(devices=("cpu",), accepts_other_value_head_dim=False),
        ),
    ),
    Backend(
        "sdpa_efficient",
        load=partial(forced, "EFFICIENT_ATTENTION", repeat_heads=True),
        limits=(replace(CUDA, dtypes=(torch.float32, *HALVES), head_dim_multiple_of=8, min_compute_capability=(5, 0)),),
    ),
    Backend(
        "sdpa_cudnn",
        load=partial(forced, "CUDNN_ATTENTION", repeat_heads=True),
        # No masks: a row that may see no key does not surely give zeros.
        limits=(replace(CUDA_HALF, accepts_other_value_head_dim=True, min_key_tokens=2),),
        deterministic=False,  # torch refuses it under torch.use_deterministic_algorithms
    ),
    Backend("sdpa_math", load=partial(forced, "MATH", repeat_heads=False)),
)
