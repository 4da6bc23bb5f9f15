"""``vanilla``, ``split`` and ``sub_quadratic``: exact attention in plain torch, on any device.

Chunk sizes follow from the shapes alone, never from free memory: the same call does the same work every time, nothing
synchronises with the device, and torch.compile traces it (the loops are unrolled).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .backend import Backend, Inputs, Mask
from .scores import (
    NEGATIVE_INFINITY,
    flat_heads,
    masked_scores,
    match_heads,
    slice_mask,
    softmax_dtype,
    softmax_or_zeros,
)

MIB = 2**20
SPLIT_MAX_BYTES = 256 * MIB
SUB_QUADRATIC_MAX_BYTES = 64 * MIB
# The key chunk of the paper's own implementation; smaller ones pay for the rescaling without saving much.
KEY_CHUNK = 4096
SMALLEST_CHUNK = 64


def vanilla(inputs: Inputs) -> Tensor:
    """Vaswani et al. 2017 (arXiv 1706.03762), equation 1, as diffusers' ``AttnProcessor``; softmax always in fp32."""
    q, k, v, mask, scale, enable_gqa = inputs
    k, v = match_heads(q, k, v, enable_gqa)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = masked_scores(flat_heads(q), flat_heads(k), scale, mask, heads=q.shape[1])
    weights = softmax_or_zeros(scores, mask is not None).to(v.dtype)
    return torch.matmul(weights, v)


def even_chunk(total: int, largest: int) -> int:
    """Return the chunk size <= ``largest`` that cuts ``total`` into the fewest, nearly equal chunks."""
    chunks = -(-total // max(1, min(total, largest)))
    return -(-total // chunks)


def split_chunk(heads: int, queries: int, keys: int, element_bytes: int, max_bytes: int) -> int:
    """Return how many queries ``split`` handles at a time, at least one.

    The widest temporary, the softmax ``[heads, chunk, keys]``, takes at most ``max_bytes``. ``heads`` is batch times
    heads, ``element_bytes`` those of one softmax element.
    """
    return even_chunk(queries, max_bytes // (heads * keys * element_bytes))


def sub_quadratic_chunks(heads: int, queries: int, keys: int, element_bytes: int, max_bytes: int) -> tuple[int, int]:
    """Return the chunks (queries, keys) of ``sub_quadratic``, so that ``[heads, queries, keys]`` fits ``max_bytes``.

    Keys are cut further than ``KEY_CHUNK`` only where fewer than ``SMALLEST_CHUNK`` queries would fit. The smallest
    chunk is one query by ``SMALLEST_CHUNK`` keys, whatever the bound.
    """
    entries = max(1, max_bytes // (heads * element_bytes))
    wanted = max(SMALLEST_CHUNK, min(KEY_CHUNK, entries // SMALLEST_CHUNK))
    key_chunk = even_chunk(keys, wanted)
    return even_chunk(queries, entries // key_chunk), key_chunk


def split(inputs: Inputs, max_bytes: int = SPLIT_MAX_BYTES) -> Tensor:
    """Full softmax over slices of the queries (sliced attention of diffusers and ComfyUI).

    ``max_bytes`` bounds each temporary (see ``split_chunk``); up to three live at once.
    """
    q, k, v, mask, scale, enable_gqa = inputs
    k, v = match_heads(q, k, v, enable_gqa)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    batch, heads, queries, _ = q.shape
    element_bytes = softmax_dtype(q.dtype).itemsize
    chunk = split_chunk(batch * heads, queries, k.shape[2], element_bytes, max_bytes)
    flat_k, flat_v = flat_heads(k), flat_heads(v)

    def attend(some: Tensor, part_mask: Mask) -> Tensor:
        scores = masked_scores(some, flat_k, scale, part_mask, heads)
        weights = softmax_or_zeros(scores, mask is not None).to(v.dtype)
        return torch.bmm(flat_heads(weights), flat_v)

    return _in_slices(q, v, mask, chunk, attend)


def sub_quadratic(inputs: Inputs, max_bytes: int = SUB_QUADRATIC_MAX_BYTES) -> Tensor:
    """Rabe & Staats 2021 (arXiv 2112.05682): queries and keys in chunks, with a running maximum and sum in fp32.

    ``max_bytes`` bounds each temporary, except the fp32 accumulator of as many elements as a slice of the output.
    """
    q, k, v, mask, scale, enable_gqa = inputs
    k, v = match_heads(q, k, v, enable_gqa)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    element_bytes = softmax_dtype(q.dtype).itemsize
    query_chunk, key_chunk = sub_quadratic_chunks(batch * heads, queries, keys, element_bytes, max_bytes)
    flat_k, flat_v = flat_heads(k), flat_heads(v)

    def attend(some: Tensor, part_mask: Mask) -> Tensor:
        return _one_query_chunk(some, flat_k, flat_v, part_mask, scale, heads, key_chunk)

    return _in_slices(q, v, mask, query_chunk, attend)


def _in_slices(q: Tensor, v: Tensor, mask: Mask, chunk: int, attend: Callable[[Tensor, Mask], Tensor]) -> Tensor:
    """Attend with ``chunk`` queries at a time: ``[batch, heads, queries, value_head_dim]``.

    ``attend`` is given queries ``[batch * heads, chunk, head_dim]`` and their mask.
    """
    batch, heads, queries, _ = q.shape
    out = v.new_empty((batch, heads, queries, v.shape[-1]))
    for start in range(0, queries, chunk):
        part = slice(start, min(start + chunk, queries))
        done = attend(flat_heads(q[:, :, part]), slice_mask(mask, part))
        out[:, :, part] = done.reshape(batch, heads, -1, v.shape[-1])
    return out


def _one_query_chunk(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, heads: int, key_chunk: int) -> Tensor:
    """Attend to all keys (section 3 of the paper): ``[batch * heads, queries, value_head_dim]`` in the dtype of v."""
    wide = softmax_dtype(q.dtype)
    rows = (q.shape[0], q.shape[1])
    peak = torch.full((*rows, 1), NEGATIVE_INFINITY, dtype=wide, device=q.device)
    total = torch.zeros((*rows, 1), dtype=wide, device=q.device)
    weighted = torch.zeros((*rows, v.shape[-1]), dtype=wide, device=q.device)
    for start in range(0, k.shape[1], key_chunk):
        part = slice(start, min(start + key_chunk, k.shape[1]))
        part_mask = slice_mask(mask, slice(None), part)
        scores = flat_heads(masked_scores(q, k[:, part], scale, part_mask, heads)).to(wide)
        new_peak = torch.maximum(peak, scores.amax(dim=-1, keepdim=True))
        # While no key was allowed yet the peak is -inf, and -inf - -inf would be NaN; any finite shift gives exp = 0.
        shift = new_peak.masked_fill(new_peak == NEGATIVE_INFINITY, 0.0)
        weights = torch.exp(scores - shift)
        decay = torch.exp(peak - shift)
        total = total * decay + weights.sum(dim=-1, keepdim=True)
        weighted = weighted * decay + torch.bmm(weights.to(v.dtype), v[:, part]).to(wide)
        peak = new_peak
    # The sum is at least 1 (the peak's own exponential) unless no key was allowed: then the row is 0 / 1.
    return (weighted / total.masked_fill(total == 0, 1.0)).to(v.dtype)


BACKENDS = (
    Backend("split", load=lambda: split),
    Backend("sub_quadratic", load=lambda: sub_quadratic),
    Backend("vanilla", load=lambda: vanilla),
)
