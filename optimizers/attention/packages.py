"""Attention of optional packages: ``flash``, ``flash3``, ``xformers``, ``kitchen`` and ``sage``.

A package may be installed without its kernels, or for another torch: what it computes here is tried out first, see
``registry.py``.
"""

from __future__ import annotations

import contextlib
import inspect
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from importlib import import_module, metadata

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import CUDA, CUDA_HALF, HALVES, AttentionFunction, Backend, Inputs, Limits
from .torch_attention import NEGATIVE_INFINITY, match_heads


def _checked(inputs: Inputs, takes_mask: bool = False) -> Inputs:
    """Return the inputs; ValueError for a mask that a kernel would ignore, or heads that it would group unasked."""
    if inputs.mask is not None and not takes_mask:
        raise ValueError("This kernel takes no mask.")
    if not inputs.enable_gqa:
        match_heads(*inputs[:3], enable_gqa=False)
    return inputs


def _dense(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(one if one.stride(-1) == 1 else one.contiguous() for one in tensors)


def _device_of(q: Tensor) -> AbstractContextManager[object]:
    """Return a context in which the tensors' device is the current one, as it is afterwards what it was before."""
    return torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext()


# Flash attention: Dao 2023, arXiv 2307.08691; Shah et al. 2024, arXiv 2407.08608. Its tensors are
# [batch, tokens, heads, head_dim], those of xformers too.


@cache
def load_flash(module: str) -> AttentionFunction:
    """Import FlashAttention, 2 (``flash_attn``) or 3 (``flash_attn_interface``), and return its attention."""
    kernel = import_module(module).flash_attn_func

    def attention(inputs: Inputs) -> Tensor:
        q, k, v, _, scale, _ = _checked(inputs)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = kernel(q, k, v, softmax_scale=scale, causal=False)
        out = out[0] if isinstance(out, tuple) else out  # early builds of FA3 return (out, logsumexp)
        result: Tensor = out.transpose(1, 2)
        return result

    return attention


_FLASH = replace(CUDA_HALF, max_head_dim=256)

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


@cache
def load_xformers() -> AttentionFunction:
    """Import xformers and return its attention; without its compiled extension the import only warns."""
    from xformers.ops import memory_efficient_attention

    def attention(inputs: Inputs) -> Tensor:
        q, k, v, mask, scale, enable_gqa = inputs
        k, v = match_heads(q, k, v, enable_gqa)
        bias = None if mask is None else tensor_bias(mask, q, k.shape[2])
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out: Tensor = memory_efficient_attention(q, k, v, attn_bias=bias, scale=scale)
        return out.transpose(1, 2)

    return attention


_XFORMERS = replace(CUDA, dtypes=(torch.float32, *HALVES), head_dim_multiple_of=8, min_compute_capability=(6, 0))


@cache
def load_kitchen() -> AttentionFunction:
    """Import comfy_kitchen, ComfyUI's own package of kernels, and return its int8 attention, which is not exact.

    Queries and keys are rotated by a Hadamard transform, which keeps their products, before q, k, v and the
    probabilities are quantised to 8 bits: github.com/Comfy-Org/comfy-kitchen, ``sage_attention.py``.
    """
    int8_attention = vars(import_module("comfy_kitchen")).get("int8_attention")
    if int8_attention is None:
        raise ImportError("cannot import name 'int8_attention'")

    def attention(inputs: Inputs) -> Tensor:
        q, k, v, mask, scale, _ = _checked(inputs, takes_mask=True)
        q, k, v = _dense(q, k, v)
        with _device_of(q):  # it starts its kernels on the stream of that device
            out: Tensor = int8_attention(q, k, v, scale=scale, attn_mask=mask)
        return out

    return attention


# What its ``_validate_inputs`` checks.
_KITCHEN = replace(
    CUDA,
    dtypes=(torch.float32, *HALVES),
    max_head_dim=256,
    accepts_grad=False,
    accepts_other_value_head_dim=False,
    min_compute_capability=(7, 5),
)

# Upstream 1.x of SageAttention has kernels for these; 2.x pads to 64 or 128 itself.
V1_HEAD_DIMS = (64, 96, 128)
V1_KEYS = 64
"""Keys that 1.x reads at once. Where the last block is not full, 1.0.6 counts what lies past the keys as keys
with a score of 0, so that 77 text tokens come out too small (``attn_qk_int8_per_block.py``)."""


@cache
def load_sage() -> AttentionFunction:
    """Import sageattention, 1.x (Triton) or 2.x (CUDA), which quantise q and k to 8 bits: faster, and not exact.

    Zhang et al. 2024, arXiv 2410.02367 and 2411.10958.
    """
    from sageattention import sageattn

    # 2.x swallows unknown keywords, so a mask or smooth_k given to it would be ignored silently: look before passing.
    is_version_1 = "smooth_k" in inspect.signature(sageattn).parameters

    def attention(inputs: Inputs) -> Tensor:
        q, k, v, _, scale, _ = _checked(inputs)
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
        q, k, v = _dense(q, k, v)
        with _device_of(q):  # 2.x calls torch.cuda.set_device and leaves it so
            out: Tensor = sageattn(q, k, v, tensor_layout="HND", is_causal=False, sm_scale=scale, **options)
        return out[..., :head_dim]

    return attention


def limits_of(version: str) -> Limits:
    """Return which calls this version of SageAttention computes rightly."""
    return replace(CUDA_HALF, accepts_grad=False, key_tokens_multiple_of=V1_KEYS if version.startswith("1.") else 1)


_SAGE_VERSION = ""
with contextlib.suppress(metadata.PackageNotFoundError):
    _SAGE_VERSION = metadata.version("sageattention")

BACKENDS = (
    Backend(
        name="flash",
        load=partial(load_flash, "flash_attn"),
        limits=(_FLASH,),
        module="flash_attn",
        package="flash-attn",
        install="install --no-deps --no-build-isolation flash-attn",
        install_note="It is compiled on your machine with the CUDA toolkit, for up to hours, unless a wheel for your "
        "torch is taken from its releases page.",
    ),
    Backend(
        name="flash3",
        load=partial(load_flash, "flash_attn_interface"),
        limits=(replace(_FLASH, min_compute_capability=(9, 0), max_compute_capability=(9, 0)),),
        module="flash_attn_interface",
        package="flash_attn_3",
        install_note="It is built from the folder 'hopper' of github.com/Dao-AILab/flash-attention: python setup.py "
        "install.",
    ),
    Backend(
        name="xformers",
        load=load_xformers,
        limits=(_XFORMERS,),
        module="xformers",
        package="xformers",
        install="install --no-deps xformers",
        install_note="Each xformers release is built for one torch release (0.0.35: torch 2.10); take the matching "
        "one.",
    ),
    Backend(
        name="kitchen",
        load=load_kitchen,
        limits=(_KITCHEN,),
        module="comfy_kitchen",
        package="comfy-kitchen",
        install="install --no-deps comfy-kitchen",
        install_note="It comes with ComfyUI, and has int8 attention since 0.2.30: update ComfyUI to 0.33 or newer.",
        exact=False,
    ),
    Backend(
        name="sage",
        load=load_sage,
        limits=(limits_of(_SAGE_VERSION),),
        module="sageattention",
        package="sageattention",
        install="install --no-deps sageattention",
        install_note="It needs Triton (on Windows: triton-windows). The package index has version 1; version 2 is "
        "faster and is built from github.com/thu-ml/SageAttention with the CUDA toolkit.",
        exact=False,
    ),
)
