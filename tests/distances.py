"""How far apart two results are."""

from __future__ import annotations

import torch


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """Length of the difference, as a share of the length of ``b``; of any shape."""
    return ((a - b).norm() / b.norm()).item()


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two results differ by rounding only."""
    return relative(a, b) < 1e-5
