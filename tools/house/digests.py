"""What is kept of a drawing: digests of its tensors, and how many graphs were compiled for it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch

Draw = Callable[[], dict[str, Any]]
"""Gives digests: ``image`` with the technique, ``plain`` without, ``restored`` after it was taken off; and the number
of ``graphs`` that torch.compile made, if any."""


def digest(*tensors: Any) -> str:
    """Return the SHA-256 of tensors: their dtypes, shapes and bits."""
    found = hashlib.sha256()
    for tensor in tensors:
        whole = tensor.detach().cpu().contiguous()
        found.update(f"{whole.dtype} {tuple(whole.shape)} ".encode())
        found.update(whole.view(torch.uint8).numpy().tobytes() if whole.ndim else whole.numpy().tobytes())
    return found.hexdigest()[:16]


def graphs() -> dict[str, int]:
    """Return how many graphs torch.compile has made since the last call, if any."""
    from torch._dynamo.utils import counters

    made = int(counters["stats"]["unique_graphs"])
    counters.clear()
    return {"graphs": made} if made else {}
