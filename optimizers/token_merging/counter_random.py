"""Random choices that are a pure function of their coordinates (seed, block, step, cell).

A generator would tie the result to what was drawn before, the device and the batch, disturb the host's own seeds, and
cannot be traced by ``torch.compile``. The mixing function is ``lowbias32`` by Chris Wellons
(https://nullprogram.com/blog/2018/07/31/, public domain).
"""

from __future__ import annotations

from typing import Any, TypeVar

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
