"""Fewer keys and values: attention looks at a thinned-out image, every query stays.

After ToDo (Smith et al., https://arxiv.org/abs/2402.13573): neighbouring tokens are much alike, so a coarser grid of
keys and values says nearly the same. There is nothing to match, to spread again or to draw at random, all shapes are
static, and the cost is one strided copy.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InvalidSetting, require_choice, require_number
from .settings import PoolMode


def downsampled_side(side: int, ratio: float) -> int:
    """Return how many of ``side`` rows (or columns) stay, so that about ``1 - ratio`` of all tokens do.

    Raises:
        InvalidSetting: if ``ratio`` is not a number from 0 to 1.
    """
    require_number("ratio", ratio, 0.0, 1.0)
    return max(1, round(side * math.sqrt(1.0 - ratio)))


def downsample_tokens(x: Tensor, height: int, width: int, ratio: float, mode: PoolMode = "nearest") -> Tensor:
    """Thin out image tokens on a regular grid.

    Args:
        x: ``[batch, height * width, channels]``, row by row.
        height: rows of tokens.
        width: columns of tokens.
        ratio: share of the tokens to leave out; 0.75 halves both sides.
        mode: ``"nearest"`` keeps tokens as they are, as in ToDo; ``"mean"`` averages what each kept place stands for.

    Returns:
        ``[batch, kept rows * kept columns, channels]``; ``x`` itself if nothing is left out.

    Raises:
        InvalidSetting: if ``x`` does not have ``height * width`` tokens, or an argument is out of range.
    """
    require_choice("mode", mode, ("nearest", "mean"))
    batch, tokens, channels = x.shape
    if tokens != height * width:
        raise InvalidSetting(f"There are {tokens} tokens, but {height} x {width} places.")
    rows, columns = downsampled_side(height, ratio), downsampled_side(width, ratio)
    if (rows, columns) == (height, width):
        return x
    grid = x.view(batch, height, width, channels)
    if mode == "mean":
        # [B, h, w, C] seen as [B, C, h, w] is torch's channels_last: pooled without a transposed copy.
        pooled = F.adaptive_avg_pool2d(grid.permute(0, 3, 1, 2), (rows, columns))
        return pooled.permute(0, 2, 3, 1).reshape(batch, rows * columns, channels)
    if height % rows == 0 and width % columns == 0:
        kept = grid[:, :: height // rows, :: width // columns]
    else:
        kept = grid.index_select(1, _places(height, rows, x.device)).index_select(2, _places(width, columns, x.device))
    return kept.reshape(batch, rows * columns, channels)


def _places(side: int, kept: int, device: torch.device) -> Tensor:
    """Return ``kept`` places spread evenly over ``side``, the first at 0, as torch's "nearest" interpolation does."""
    return torch.arange(kept, device=device) * side // kept
