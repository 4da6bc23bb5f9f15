"""Which tokens of an image stay as destinations, and which may be merged into them.

One destination per cell of ``sx * sy`` tokens spreads the destinations evenly (arXiv 2303.17604, section 4.2).
Tokens are numbered row by row: token = row * width + column.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

_WORD = TypeVar("_WORD", int, Tensor)

_MASK = 0xFFFFFFFF
_FIRST = 0x7FEB352D
# Written as a negative number so that a 32-bit word times it stays inside int64; modulo 2**32 it is 0x846CA68B.
_SECOND = 0x846CA68B - 2**32


def mix(word: _WORD) -> _WORD:
    """Return ``lowbias32`` of a word (or of each element of an int64 tensor) in ``[0, 2**32)``.

    Python integers and tensors give the same result. No intermediate leaves the int64 range.
    """
    word = word ^ (word >> 16)
    word = (word * _FIRST) & _MASK
    word = word ^ (word >> 15)
    word = (word * _SECOND) & _MASK
    return word ^ (word >> 16)


def choices(
    count: int, options: int, *, seed: int, step: int | Tensor, block: int | Tensor, device: torch.device | str
) -> Tensor:
    """Choose one of ``options`` for each of ``count`` cells: int64 ``[count]`` (``[blocks, count]``) on ``device``.

    ``options``: 1 to 2**31, each with the same probability to within 2**-32. ``seed``: 0 to 2**64 - 1. ``step``: a 0-d
    integer tensor, also on the CPU, keeps a compiled graph valid for all steps; an equal ``int`` gives equal choices;
    only the low 32 bits count. ``block``: different blocks get independent choices; several at once are int64
    ``[blocks, 1]`` on ``device``.
    """
    first = mix(mix(seed & _MASK) ^ ((seed >> 32) & _MASK))
    # Words are tensors where step or block are, and else Python's integers.
    low: Any = block & _MASK
    number: Any = (step.to(torch.int64) if isinstance(step, Tensor) else step) & _MASK
    words: Tensor = mix(number ^ mix(low ^ first)) ^ torch.arange(count, device=device)
    # The high word of the product: no modulo, hence no bias towards small options (Lemire, arXiv 1805.10941).
    return (mix(words) * options) >> 32


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
    ``row * sx + column`` in ``[0, sx * sy)``, by default the top-left token; see `choices`. With a leading axis for
    several blocks, the partition has it too.
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
