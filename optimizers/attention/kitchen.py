"""``kitchen``: the int8 attention of comfy-kitchen, ComfyUI's own package of kernels. Faster, and not exact.

Queries and keys are rotated by a Hadamard transform, which keeps their products, before q, k, v and the probabilities
are quantised to 8 bits: github.com/Comfy-Org/comfy-kitchen, ``sage_attention.py``. Its limits are those that its
``_validate_inputs`` checks.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import replace
from importlib import import_module

import torch
from torch import Tensor

from .backend import CUDA, HALVES, AttentionFunction, Backend, Inputs
from .plain import match_heads


@functools.cache
def load_kitchen() -> AttentionFunction:
    """Import comfy_kitchen and return its int8 attention."""
    int8_attention = vars(import_module("comfy_kitchen")).get("int8_attention")
    if int8_attention is None:
        raise ImportError("cannot import name 'int8_attention'")

    def attention(inputs: Inputs) -> Tensor:
        q, k, v, mask, scale, enable_gqa = inputs
        if not enable_gqa:
            match_heads(q, k, v, enable_gqa)  # the kernel itself would group unequal heads without being asked
        q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
        # It starts its kernels on the stream of the tensors' device, which has to be the current one.
        device = torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext()
        with device:
            out: Tensor = int8_attention(q, k, v, scale=scale, attn_mask=mask)
        return out

    return attention


BACKENDS = (
    Backend(
        name="kitchen",
        load=load_kitchen,
        limits=(
            replace(
                CUDA,
                dtypes=(torch.float32, *HALVES),
                max_head_dim=256,
                accepts_grad=False,
                accepts_other_value_head_dim=False,
                min_compute_capability=(7, 5),
            ),
        ),
        module="comfy_kitchen",
        package="comfy-kitchen",
        install="install --no-deps comfy-kitchen",
        install_note="It comes with ComfyUI, and has int8 attention since 0.2.30: update ComfyUI to 0.33 or newer.",
        exact=False,
    ),
)
