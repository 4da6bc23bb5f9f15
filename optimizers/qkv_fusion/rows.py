"""Several weights as one: matrices behind each other in memory *are* the larger matrix of all their rows.

The weights are moved there once, and the fused weight is the same memory, not a copy. Parameters keep their identity,
shape, strides and values; what is changed in place (a LoRA, say) is changed in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch._subclasses import FakeTensor

PLAIN = (torch.nn.Parameter, torch.Tensor, FakeTensor)
"""Exact classes of tensors that are nothing but their rows: other classes mean something else by their memory. Fake
ones have no memory, and stand for plain ones where a network is only looked at."""

MATRIX_ALIGNMENT, VECTOR_ALIGNMENT = 64, 16
"""Bytes. Allocators begin tensors on such a boundary, and matrix kernels choose their code by it, so a weight that
began elsewhere could give other bits than before. A bias is only added."""


def refuse_rows(tensors: Sequence[torch.Tensor]) -> str | None:
    """Return why ``tensors`` ``[rows, ...]`` cannot be one tensor of all their rows, or None if they can."""
    first = tensors[0]
    if any(tensor.device != first.device for tensor in tensors):
        return "its weights are on different devices"
    if any(tensor.dtype != first.dtype for tensor in tensors):
        return "its weights have different dtypes"
    if any(tensor.shape[1:] != first.shape[1:] for tensor in tensors):
        return "its weights have rows of different lengths"
    if any(not tensor.is_contiguous() for tensor in tensors):
        return "its weights are not contiguous"
    alignment = MATRIX_ALIGNMENT if first.ndim > 1 else VECTOR_ALIGNMENT
    if any(tensor.numel() * tensor.element_size() % alignment for tensor in tensors[:-1]):
        return f"its weights do not fill whole blocks of {alignment} bytes"
    return None


def join_rows(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one tensor ``[sum of rows, ...]`` that shares its memory with ``tensors``, none of which change in value.

    Where they do not lie behind each other yet, they are copied there and their ``data`` is set to the new place.
    ``refuse_rows`` must have no objection to them.
    """
    found = _already_joined(tensors)
    if found is not None:
        return found
    with torch.inference_mode(False), torch.no_grad():
        joined = torch.cat([tensor.detach() for tensor in tensors])
    begin = 0
    for tensor in tensors:
        # Made in inference mode or not, each tensor stays what it is: the first kind cannot be changed in place outside
        # of that mode, which core does to parameters, and a mixture of both kinds cannot be looked at outside of it.
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            tensor.data = _rows(joined.untyped_storage(), begin, tensor)
        begin += tensor.numel()
    return joined


def separate_rows(tensors: Iterable[torch.Tensor]) -> None:
    """Undo ``join_rows``: give each tensor that is part of a larger piece of memory one of its own, with its values."""
    for tensor in tensors:
        if tensor.untyped_storage().nbytes() > tensor.nbytes:
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                tensor.data = tensor.data.clone()


def _rows(storage: torch.UntypedStorage, begin: int, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the shape of ``like`` that begins at element ``begin`` of ``storage``."""
    rows = torch.empty(0, dtype=like.dtype, device=like.device)
    return rows.set_(storage, begin, like.shape, like.stride())


def _already_joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the tensor of all rows if ``tensors`` lie behind each other in one allocation."""
    first = tensors[0]
    storage = first.untyped_storage()
    end = first.storage_offset()
    for tensor in tensors:
        # Two allocations can touch by chance; only one and the same can be looked at through one tensor.
        if tensor.storage_offset() != end or tensor.untyped_storage()._cdata != storage._cdata:
            return None
        end += tensor.numel()
    rows = sum(tensor.shape[0] for tensor in tensors)
    shape = (rows, *first.shape[1:])
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    with torch.inference_mode(False), torch.no_grad():
        joined = torch.empty(0, dtype=first.dtype, device=first.device)
        return joined.set_(storage, first.storage_offset(), shape, strides)
