"""Which tokens of an image stay as destinations, and which may be merged into them.

One destination per cell of ``sx * sy`` tokens spreads the destinations evenly (arXiv 2303.17604, section 4.2).
Tokens are numbered row by row: token = row * width + column.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .counter_random import choices

LARGEST_STRIDE = 64
"""Largest accepted ``sx`` and ``sy``, in tokens. Far beyond anything useful: 4 already merges 94 % at most."""


class Partition(NamedTuple):
    """The tokens of one image, split in two; the same for every element of a batch.

    ``destinations``: int64 ``[D]``, one per full cell, never merged away. ``sources``: int64 ``[tokens - D]``, all
    others, ascending. Both have a leading axis if several blocks were drawn at once.
    """

    destinations: Tensor
    sources: Tensor


def positions(mask: Tensor, count: int) -> Tensor:
    """Return where ``mask`` is true, int64 ``[batch, count]`` ascending, without asking the device how often that is.

    ``mask`` is bool ``[batch, items]``, with exactly ``count`` true elements per row.
    """
    batch, items = mask.shape
    # `nonzero` would wait for the device and has no static shape. Items that are not wanted all go to one last
    # place, which is cut off.
    place = torch.where(mask, mask.cumsum(dim=-1) - 1, count)
    item = torch.arange(items, device=mask.device).expand(batch, items)
    return item.new_empty(batch, count + 1).scatter_(1, place, item)[:, :count]


def partition_tokens(
    height: int,
    width: int,
    *,
    sx: int = 2,
    sy: int = 2,
    offsets: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> Partition:
    """Split an image's tokens into one destination per full cell, and sources.

    Rows and columns that no full cell covers hold sources only. Cells are ``sx`` columns by ``sy`` rows. ``offsets``:
    int64 ``[(height // sy) * (width // sx)]`` on ``device``, the destination's place inside of its cell,
    ``row * sx + column``, by default the top-left token; see `random_offsets`. With a leading axis for several blocks,
    the partition has it too.
    """
    rows, columns = height // sy, width // sx
    cell_row = torch.arange(rows, device=device) * sy
    cell_column = torch.arange(columns, device=device) * sx
    destinations = (cell_row[:, None] * width + cell_column).reshape(rows * columns)
    if offsets is not None:
        offset_row = torch.div(offsets, sx, rounding_mode="floor")
        destinations = destinations + offset_row * width + (offsets - offset_row * sx)
    tokens = height * width
    several = destinations if destinations.dim() == 2 else destinations[None]
    is_source = torch.ones(several.shape[0], tokens, dtype=torch.bool, device=device).scatter_(1, several, False)
    sources = positions(is_source, tokens - rows * columns)
    return Partition(destinations, sources if several is destinations else sources[0])


def random_offsets(
    height: int,
    width: int,
    *,
    sx: int = 2,
    sy: int = 2,
    seed: int = 0,
    step: int | Tensor = 0,
    block: int | Tensor = 0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Choose each cell's destination at random, as a pure function of the arguments, for `partition_tokens`.

    Returns int64 ``[(height // sy) * (width // sx)]``, for several blocks ``[blocks, ...]``, in ``[0, sx * sy)``; seed,
    step, block and device as in `choices`.
    """
    cells = (height // sy) * (width // sx)
    return choices(cells, sx * sy, seed=seed, step=step, block=block, device=device)
