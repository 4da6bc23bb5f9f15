"""Tokens that are alike become one, by bipartite soft matching, with the options of tomesd.

The algorithm of ToMe for Stable Diffusion (https://arxiv.org/abs/2303.17604), arranged so that nothing waits for
the device, everything has static shapes, and the work on the features is one pass per merge and per unmerge. Tokens are
numbered row by row: token = row * width + column.

What is guaranteed:
    * Similarities are accumulated and compared in at least float32, whatever the model's precision.
    * Ties are broken by the lowest index: among equally similar destinations the first wins, among equally similar
      sources at the cut those with the lowest token numbers are merged.
    * An element's matching is computed with the same shapes whatever else is in the batch. Its similarities are
      one batched matrix product, so they are bitwise independent of the batch where the device's product is.
    * Merging sums a slot's tokens in ascending order, without atomics, on the CPU and on CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.devices import is_compiling

LARGEST_STRIDE = 64
"""Largest accepted ``sx`` and ``sy``, in tokens. Far beyond anything useful: 4 already merges 94 % at most."""

CPU_SCORES = 2**20
"""Similarities held at once per batch element on a CPU: 4 MiB in float32, which stays in cache until reduced."""

DEVICE_SCORES = 2**25
"""The same on accelerators, and wherever a compiled graph would be unrolled once per chunk: 128 MiB in float32."""

SMALLEST_CHUNK = 64
"""Sources per chunk below which the matrix product gets slow; beats the two limits for very large images."""

# torch 2.8 brought `bmm(..., out_dtype=torch.float32)`, for CUDA.
_MIXED_PRODUCT = torch.version.hip is None and hasattr(torch.ops.aten.bmm, "dtype")

_WORD = TypeVar("_WORD", int, Tensor)
_MASK = 0xFFFFFFFF
_FIRST = 0x7FEB352D
# Written as a negative number so that a 32-bit word times it stays inside int64; modulo 2**32 it is 0x846CA68B.
_SECOND = 0x846CA68B - 2**32


def mix(word: _WORD) -> _WORD:
    """Return ``lowbias32`` of a word, or of each element of an int64 tensor, in ``[0, 2**32)``: both give the same."""
    word = word ^ (word >> 16)
    word = (word * _FIRST) & _MASK
    word = word ^ (word >> 15)
    word = (word * _SECOND) & _MASK
    return word ^ (word >> 16)


def choices(count: int, options: int, step: int | Tensor, block: int | Tensor, device: torch.device | str) -> Tensor:
    """Choose one of ``options`` for each of ``count`` cells, anew for each step and block: int64 ``[count]``.

    Several blocks at once, int64 ``[blocks, 1]`` on ``device``, give ``[blocks, count]``: each what it gets alone.

    A ``step`` as a 0-d integer tensor, also on the CPU, keeps a compiled graph valid for all steps; an equal ``int``
    gives equal choices. Each option has the same probability to within 2**-32, and no random stream is touched.
    """
    # Words are tensors where step or block are, and else Python's integers.
    number: Any = (step.to(torch.int64) if isinstance(step, Tensor) else step) & _MASK
    low: Any = block
    words: Tensor = mix(number ^ mix(low)) ^ torch.arange(count, device=device)
    # The high word of the product: no modulo, hence no bias towards small options (Lemire, arXiv 1805.10941).
    return (mix(words) * options) >> 32


def column(blocks: tuple[int, ...], device: torch.device) -> Tensor:
    """Return several blocks as ``choices`` takes them."""
    return torch.tensor(blocks, device=device)[:, None]


def partition(
    height: int, width: int, sx: int, sy: int, offsets: Tensor | None, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """Split a picture's tokens into one destination for each full cell, which stays, and sources, ascending.

    ``offsets``: int64 ``[(height // sy) * (width // sx)]``, the destination's place inside of its cell, ``row * sx +
    column``; None for the top-left token. With a leading axis for several blocks, both results have it too. Rows and
    columns that no full cell covers hold sources only.
    """
    rows, columns = height // sy, width // sx
    cell_row, cell_column = torch.arange(rows, device=device) * sy, torch.arange(columns, device=device) * sx
    destinations = (cell_row[:, None] * width + cell_column).reshape(rows * columns)
    if offsets is not None:
        offset_row = torch.div(offsets, sx, rounding_mode="floor")
        destinations = destinations + offset_row * width + (offsets - offset_row * sx)
    # Sorting, as `nonzero` would wait for the device and has no static shape.
    is_destination = torch.zeros(*destinations.shape[:-1], height * width, dtype=torch.uint8, device=device)
    sources = is_destination.scatter_(-1, destinations, 1).sort(stable=True).indices
    return destinations, sources[..., : height * width - rows * columns]


@dataclass(frozen=True)
class Matching:
    """Where each token goes. ``slots`` are the tokens that are left; all tensors are int64.

    Merging and undoing it use rows and members, which count through the whole batch: one operator each.

    Attributes:
        row_of_token: ``[batch, tokens]``, the slot that holds each token, as a row of ``[batch * slots]``.
        members: ``[batch * tokens]``, all tokens as rows: by slot, ascending within a slot.
        starts: ``[batch, slots]``, where each slot's tokens begin in ``members``.
    """

    row_of_token: Tensor
    members: Tensor
    starts: Tensor

    @property
    def tokens(self) -> int:
        return self.row_of_token.shape[1]

    @property
    def kept(self) -> int:
        return self.starts.shape[1]

    def fits(self, x: Tensor) -> bool:
        return x.dim() == 3 and x.shape[:2] == self.row_of_token.shape

    def reduce(self, x: Tensor) -> Tensor:
        """``[batch, tokens, channels]`` -> ``[batch, kept, channels]``: the mean of each slot's tokens.

        A token that stays alone is unchanged.
        """
        rows, starts = x.reshape(-1, x.shape[-1]), self.starts.view(-1)
        if x.device.type in ("cpu", "cuda"):
            # Gathers, sums (in float32 for half precision) and divides in one kernel, each slot by one thread.
            return F.embedding_bag(self.members, rows, starts, mode="mean").view(*self.starts.shape, -1)
        return self.reduce_by_addition(x)

    def reduce_by_addition(self, x: Tensor) -> Tensor:
        """Do the work of `reduce` with operators that every device has."""
        precise, rows = _at_least_float32(x.dtype), self.row_of_token.view(-1)
        total = x.new_zeros(self.starts.numel(), x.shape[-1], dtype=precise)
        total = total.index_add_(0, rows, x.reshape(-1, x.shape[-1]).to(precise))
        starts = self.starts.view(-1)
        counts = torch.diff(starts, append=starts.new_full((1,), self.members.numel()))
        return (total / counts[:, None]).to(x.dtype).view(*self.starts.shape, -1)

    def restore(self, y: Tensor) -> Tensor:
        """``[batch, kept, channels]`` -> ``[batch, tokens, channels]``: every token has the value of its slot."""
        rows = y.reshape(-1, y.shape[-1]).index_select(0, self.row_of_token.view(-1))
        return rows.view(*self.row_of_token.shape, -1)


@torch.no_grad()
def match(metric: Tensor, destinations: Tensor, sources: Tensor, ratio: float) -> Matching:
    """Merge those sources that are most similar to a destination into it.

    ``metric``: ``[batch, tokens, channels]``, floating point, compared by the cosine of the channels. An all-zero token
    is equally unlike every other; with NaN the matching is still valid. ``ratio``: share of the tokens to merge away, 0
    to 1; never more than there are sources, and none without a destination.
    """
    batch, tokens, _ = metric.shape
    merged = min(len(sources), int(tokens * ratio)) if len(destinations) else 0
    every = torch.arange(tokens, device=metric.device)
    kept_as = every.expand(batch, tokens)  # the token that stands for each
    if merged:
        similarity, destination = _best_destination(metric, destinations, sources)
        # [batch, merged], into sources: the most alike first, of equal ones the first
        chosen = similarity.sort(dim=-1, descending=True, stable=True).indices[:, :merged]
        kept_as = kept_as.scatter(1, sources[chosen], destinations[destination.gather(1, chosen)])
    # A slot is numbered by how many tokens are kept before its own, through the whole batch.
    number = (kept_as == every).view(-1).cumsum(dim=0).view(batch, tokens)
    row_of_token = number.gather(1, kept_as).sub_(1)
    # Sorting whole numbers costs under 1 % of the matching, and lets tokens be merged in a single pass.
    by_row, members = row_of_token.view(-1).sort(stable=True)
    rows = torch.arange(batch * (tokens - merged), device=metric.device)
    return Matching(row_of_token, members, torch.searchsorted(by_row, rows).view(batch, -1))


def _best_destination(metric: Tensor, destinations: Tensor, sources: Tensor) -> tuple[Tensor, Tensor]:
    """Return each source's highest similarity, and which of ``destinations`` has it: ``[batch, sources]`` each."""
    in_cache = metric.device.type == "cpu" and not is_compiling()
    # Not a function of the batch: the shape of a matrix product can change its last bits.
    rows = max(SMALLEST_CHUNK, (CPU_SCORES if in_cache else DEVICE_SCORES) // destinations.shape[0])
    mixed = _MIXED_PRODUCT and metric.dtype in (torch.float16, torch.bfloat16) and metric.device.type == "cuda"
    directions = F.normalize(metric.to(_at_least_float32(metric.dtype)), dim=-1)
    directions = directions.to(metric.dtype) if mixed else directions
    others = directions.index_select(1, destinations).transpose(1, 2)
    best = [
        _products(directions.index_select(1, part), others, mixed).max(dim=-1)  # the first of equals, says torch
        for part in sources.split(rows)
    ]
    values, indices = zip(*best, strict=True)
    similarity, destination = (part[0] if len(part) == 1 else torch.cat(part, dim=1) for part in (values, indices))
    # NaN would be above everything; it is less like a destination than the opposite direction is.
    return similarity.nan_to_num(nan=-2.0), destination


def _products(a: Tensor, b: Tensor, mixed: bool) -> Tensor:
    """Return ``a @ b`` in at least float32: half precision has so few values that most similarities would tie."""
    if a.shape[1] == 1 or b.shape[2] == 1:
        # A single element of a batch would go through a matrix-vector kernel, which rounds differently.
        return (a[:, :, None].to(_at_least_float32(a.dtype)) * b.transpose(1, 2)[:, None]).sum(dim=-1)
    return torch.bmm(a, b, out_dtype=torch.float32) if mixed else torch.bmm(a, b)


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
