"""``sage``: SageAttention 1.x (Triton) and 2.x (CUDA), which quantise q and k to 8 bits: faster, and not exact.

Zhang et al. 2024, arXiv 2410.02367 and 2411.10958; github.com/thu-ml/SageAttention.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from dataclasses import replace
from importlib import metadata

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import CUDA_HALF, AttentionFunction, Backend, Inputs, Limits
from .plain import match_heads

# Upstream 1.x has kernels for these; 2.x pads to 64 or 128 itself.
V1_HEAD_DIMS = (64, 96, 128)
V1_KEYS = 64
"""Keys that 1.x reads at once. Where the last block is not full, 1.0.6 counts what lies past the keys as keys
with a score of 0, so that 77 text tokens come out too small (``attn_qk_int8_per_block.py``)."""


@functools.cache
def load_sage() -> AttentionFunction:
    """Import sageattention and return its attention."""
    from sageattention import sageattn

    # 2.x swallows unknown keywords, so a mask or smooth_k given to it would be ignored silently: look before passing.
    is_version_1 = "smooth_k" in inspect.signature(sageattn).parameters

    def attention(inputs: Inputs) -> Tensor:
        q, k, v, mask, scale, enable_gqa = inputs
        if mask is not None:
            raise ValueError("SageAttention takes no mask.")
        if not enable_gqa:
            match_heads(q, k, v, enable_gqa)  # the kernel itself would group unequal heads without being asked
        head_dim = q.shape[-1]
        scale = head_dim**-0.5 if scale is None else scale
        options = {}
        if is_version_1:
            # With smooth_k (its default) 1.x subtracts the mean key from k in place, which would change the caller's
            # tensor. A constant shift of all keys cancels in the softmax, so the same is done here on a copy.
            k = k - k.mean(dim=2, keepdim=True)
            options["smooth_k"] = False
            # Zero columns change no score and no int8 scale; 2.x does this padding itself.
            padded = head_dim if head_dim in V1_HEAD_DIMS else 64 if head_dim < 64 else 128
            padding = (0, padded - head_dim)
            q, k, v = (F.pad(t, padding) if padding[1] else t for t in (q, k, v))
        q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
        # 2.x calls torch.cuda.set_device and leaves it so.
        device = torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext()
        with device:
            out: Tensor = sageattn(q, k, v, tensor_layout="HND", is_causal=False, sm_scale=scale, **options)
        return out[..., :head_dim]

    return attention


def limits_of(version: str) -> Limits:
    """Return which calls this version of the package computes rightly."""
    return replace(CUDA_HALF, accepts_grad=False, key_tokens_multiple_of=V1_KEYS if version.startswith("1.") else 1)


_INSTALLED = ""
with contextlib.suppress(metadata.PackageNotFoundError):
    _INSTALLED = metadata.version("sageattention")

BACKENDS = (
    Backend(
        name="sage",
        load=load_sage,
        limits=(limits_of(_INSTALLED),),
        module="sageattention",
        package="sageattention",
        install="install --no-deps sageattention",
        install_note="It needs Triton (on Windows: triton-windows). The package index has version 1; version 2 is "
        "faster and is built from github.com/thu-ml/SageAttention with the CUDA toolkit.",
        exact=False,
    ),
)
