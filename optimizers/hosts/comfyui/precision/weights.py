"""What happens to one weight when its network is to compute in another dtype."""

from __future__ import annotations

import torch
from torch import Tensor

_PLAIN = (torch.float32, torch.bfloat16, torch.float16)


def storage_dtype(stored: torch.dtype, compute: torch.dtype) -> torch.dtype:
    """Return what weights are kept in: never more bytes than they have now. ComfyUI casts the rest at each use."""
    if stored in _PLAIN and compute.itemsize <= stored.itemsize:
        return compute
    return stored


def convert_weight(tensor: Tensor, stored: torch.dtype, storage: torch.dtype, channels_last: bool) -> Tensor:
    """Return a weight in ``storage`` if it is in ``stored`` now; with channels last if it belongs to a convolution.

    Weights in another dtype are left: their network keeps them so (tables in fp32, quantised layers).
    """
    if tensor.dtype == stored != storage:
        tensor = tensor.to(storage)
    if channels_last and tensor.is_floating_point() and tensor.ndim in (4, 5):
        order = torch.channels_last if tensor.ndim == 4 else torch.channels_last_3d
        tensor = tensor.contiguous(memory_format=order)
    return tensor
