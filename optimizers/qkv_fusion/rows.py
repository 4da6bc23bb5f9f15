"""Tensors that become one piece of memory, row behind row, and pieces of their own again; none changes in value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch

MATRIX_ALIGNMENT, VECTOR_ALIGNMENT = 64, 16
"""Bytes. Allocators begin tensors on such a boundary, and matrix kernels choose their code by it, so a weight that
began elsewhere could give other bits than before. A bias is only added."""


def refuse_rows(tensors: Sequence[torch.Tensor]) -> str | None:
    """Return why ``tensors`` ``[rows, ...]`` cannot be one tensor of all their rows, or None if they can."""
    first = tensors[0]
    alignment = MATRIX_ALIGNMENT if first.ndim > 1 else VECTOR_ALIGNMENT
    possible = {
        "are one and the same": len({id(tensor) for tensor in tensors}) == len(tensors),
        "differ in device, dtype or width": len({(one.device, one.dtype, one.shape[1:]) for one in tensors}) == 1,
        "are not contiguous": all(tensor.is_contiguous() for tensor in tensors),
        f"do not fill whole blocks of {alignment} bytes": all(
            tensor.numel() * tensor.element_size() % alignment == 0 for tensor in tensors[:-1]
        ),
    }
    return next((f"its weights {reason}" for reason, holds in possible.items() if not holds), None)


def join_rows(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one tensor ``[sum of rows, ...]`` that shares its memory with ``tensors``.

    Where they do not lie behind each other yet, they are copied there and their ``data`` is set to the new place.
    ``refuse_rows`` must have no objection to them.
    """
    first, starts = tensors[0], [0, *accumulate(tensor.numel() for tensor in tensors)]
    storage, begin = first.untyped_storage(), int(first.storage_offset())
    places = [(tensor.untyped_storage()._cdata, tensor.storage_offset()) for tensor in tensors]
    # Two allocations can touch by chance; only one and the same can be looked at through one tensor.
    if places != [(storage._cdata, begin + start) for start in starts[:-1]]:
        with torch.inference_mode(False), torch.no_grad():
            storage, begin = torch.cat([tensor.detach() for tensor in tensors]).untyped_storage(), 0
        for tensor, start in zip(tensors, starts, strict=False):
            # Made in inference mode or not, each tensor stays as it is: the first kind cannot be changed in place
            # outside of that mode, which core does to parameters, and a mixture cannot be looked at outside of it.
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                tensor.data = _rows(storage, start, tensor, tensor.shape[0])
    with torch.inference_mode(False), torch.no_grad():
        return _rows(storage, begin, first, sum(tensor.shape[0] for tensor in tensors))


def separate_rows(tensors: Iterable[torch.Tensor]) -> None:
    """Undo ``join_rows``: give each tensor that is part of a larger piece of memory one of its own."""
    for tensor in tensors:
        if tensor.untyped_storage().nbytes() > tensor.nbytes:
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                tensor.data = tensor.data.clone()


def _rows(storage: torch.UntypedStorage, begin: int, like: torch.Tensor, count: int) -> torch.Tensor:
    """Return ``count`` rows like those of ``like``, from element ``begin`` of ``storage`` on."""
    rows = torch.empty(0, dtype=like.dtype, device=like.device)
    return rows.set_(storage, begin, (count, *like.shape[1:]), like.stride())
