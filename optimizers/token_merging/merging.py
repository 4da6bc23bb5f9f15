"""The method ``merge``: tokens that are alike become one, by bipartite soft matching.

The algorithm of ToMe for Stable Diffusion (https://arxiv.org/abs/2303.17604), arranged so that nothing waits for
the device, everything has static shapes, and the work on the features is one pass per merge and per unmerge.

What is guaranteed:
    * Similarities are accumulated and compared in at least float32, whatever the model's precision.
    * Ties are broken by the lowest index: among equally similar destinations the first of the partition wins,
      among equally similar sources at the cut those with the lowest token numbers are merged.
    * An element's matching is computed with the same shapes whatever else is in the batch. Its similarities are
      one batched matrix product, so they are bitwise independent of the batch where the device's product is.
    * Merging sums a slot's tokens in ascending order, without atomics, on the CPU and on CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.devices import is_compiling
from ...core.errors import InvalidSetting
from ...core.phrases import translatable
from .grid import Partition, choices, partition_tokens
from .method import BlockCall, Reduction

CPU_SCORES = 2**20
"""Similarities held at once per batch element on a CPU: 4 MiB in float32, which stays in cache until reduced."""

DEVICE_SCORES = 2**25
"""The same on accelerators, and wherever a compiled graph would be unrolled once per chunk: 128 MiB in float32."""

SMALLEST_CHUNK = 64
"""Sources per chunk below which the matrix product gets slow; beats the two limits for very large images."""

# torch 2.8 brought `bmm(..., out_dtype=torch.float32)`, for CUDA.
_MIXED_PRODUCT = torch.version.hip is None and hasattr(torch.ops.aten.bmm, "dtype")


class Matching(NamedTuple):
    """Where each token goes. ``slots = tokens - merged``; all tensors are int64.

    Merging and undoing it use rows and members, which count through the whole batch: one operator each.

    Attributes:
        kept_as: ``[batch, tokens]``, the token that stands for each token: itself, or the one it was merged into.
        row_of_token: ``[batch, tokens]``, the slot that holds each token, as a row of ``[batch * slots]``.
        members: ``[batch, tokens]``, all tokens as rows of ``[batch * tokens]``: by slot, ascending within a slot.
        starts: ``[batch, slots]``, where each slot's tokens begin in ``members`` without its axes.
    """

    kept_as: Tensor
    row_of_token: Tensor
    members: Tensor
    starts: Tensor

    @property
    def counts(self) -> Tensor:
        """``[batch, slots]``, how many tokens each slot holds, at least 1."""
        ends = self.starts.new_full((1,), self.members.numel())
        return torch.diff(self.starts.reshape(-1), append=ends).view(self.starts.shape)

    @property
    def merged(self) -> int:
        return self.kept_as.shape[1] - self.starts.shape[1]


@torch.no_grad()
def match(metric: Tensor, partition: Partition, ratio: float) -> Matching:
    """Find the sources that are most similar to a destination, and that destination.

    ``metric``: ``[batch, tokens, channels]``, floating point, compared by the cosine of the channels. An all-zero token
    is equally unlike every other; with NaN the matching is still valid. ``ratio``: share of the tokens to merge away, 0
    to 1.
    """
    destinations, sources = partition
    batch, tokens, _ = metric.shape
    # Never more than there are sources; without a destination there is nothing to merge into.
    merged_count = 0 if len(sources) >= tokens else min(len(sources), int(tokens * ratio))
    if merged_count == 0:
        rows = torch.arange(batch * tokens, device=metric.device).view(batch, tokens)
        return Matching(torch.arange(tokens, device=metric.device).expand(batch, tokens), rows, rows, rows)

    similarity, destination = _best_destination(metric, destinations, sources)
    # [batch, merged], into sources: the most alike first, of equal ones the first
    chosen = similarity.sort(dim=-1, descending=True, stable=True).indices[:, :merged_count]
    target = destinations[destination.gather(1, chosen)]
    every = torch.arange(tokens, device=metric.device)
    kept_as = every.expand(batch, tokens).scatter(1, sources[chosen], target)
    # A slot is numbered by how many tokens are kept before its own, through the whole batch.
    number = (kept_as == every).view(-1).cumsum(dim=0).view(batch, tokens)
    row_of_token = number.gather(1, kept_as).sub_(1)
    # Sorting whole numbers costs under 1 % of the matching, and lets `merge` be a single pass.
    by_row, members = row_of_token.view(-1).sort(stable=True)
    rows = torch.arange(batch * (tokens - merged_count), device=metric.device)
    starts = torch.searchsorted(by_row, rows)
    return Matching(kept_as, row_of_token, members.view(batch, tokens), starts.view(batch, -1))


def merge(x: Tensor, matching: Matching) -> Tensor:
    """Reduce tokens ``[batch, tokens, channels]`` to slots ``[batch, slots, channels]``: each the mean of its tokens.

    ``x`` itself if nothing is merged; tokens that stay alone are unchanged. Raises `InvalidSetting` if ``x`` does not
    have the tokens of ``matching``.
    """
    _check_tokens(x, *matching.kept_as.shape)
    if matching.merged == 0:
        return x
    batch, tokens, channels = x.shape
    slots = matching.starts.shape[1]
    rows = x.reshape(batch * tokens, channels)
    if x.device.type in ("cpu", "cuda"):
        members, starts = matching.members.view(-1), matching.starts.view(-1)
        # Gathers, sums (in float32 for half precision) and divides in one kernel, each slot by one thread.
        return F.embedding_bag(members, rows, starts, mode="mean").view(batch, slots, channels)
    return _merge_by_addition(x, matching)


def unmerge(y: Tensor, matching: Matching) -> Tensor:
    """Give every token the value of the slot that holds it: the inverse shapes of `merge`.

    ``y`` itself if nothing was merged. Raises `InvalidSetting` if ``y`` does not have the slots of ``matching``.
    """
    _check_tokens(y, *matching.starts.shape)
    if matching.merged == 0:
        return y
    (batch, tokens), channels = matching.kept_as.shape, y.shape[-1]
    spread = y.reshape(-1, channels).index_select(0, matching.row_of_token.view(-1))
    return spread.view(batch, tokens, channels)


def _merge_by_addition(x: Tensor, matching: Matching) -> Tensor:
    """Do the work of `merge` with operators that every device has."""
    batch, tokens, channels = x.shape
    slots = matching.starts.shape[1]
    precise = _at_least_float32(x.dtype)
    total = x.new_zeros(batch * slots, channels, dtype=precise)
    total = total.index_add_(0, matching.row_of_token.view(-1), x.reshape(batch * tokens, channels).to(precise))
    total = total.view(batch, slots, channels)
    return (total / matching.counts[..., None]).to(x.dtype)


def _best_destination(metric: Tensor, destinations: Tensor, sources: Tensor) -> tuple[Tensor, Tensor]:
    """Return each source's highest similarity, and which of ``destinations`` has it: ``[batch, sources]`` each."""
    in_cache = metric.device.type == "cpu" and not is_compiling()
    limit = CPU_SCORES if in_cache else DEVICE_SCORES
    # Not a function of the batch: the shape of a matrix product can change its last bits.
    rows = max(SMALLEST_CHUNK, limit // destinations.shape[0])
    directions = F.normalize(metric.to(_at_least_float32(metric.dtype)), dim=-1)
    directions = directions.to(metric.dtype) if _has_mixed_product(metric) else directions
    others = directions.index_select(1, destinations).transpose(1, 2)
    best = [
        _products(directions.index_select(1, part), others).max(dim=-1)  # the first of equals, as torch documents
        for part in sources.split(rows)
    ]
    values, indices = zip(*best, strict=True)
    similarity, destination = (part[0] if len(part) == 1 else torch.cat(part, dim=1) for part in (values, indices))
    # NaN would be above everything; it is less like a destination than the opposite direction is.
    return similarity.nan_to_num(nan=-2.0), destination


def _products(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b`` in at least float32: half precision has so few values that most similarities would tie."""
    if a.shape[1] == 1 or b.shape[2] == 1:
        # A single element of a batch would go through a matrix-vector kernel, which rounds differently.
        return (a[:, :, None].to(_at_least_float32(a.dtype)) * b.transpose(1, 2)[:, None]).sum(dim=-1)
    return torch.bmm(a, b, out_dtype=torch.float32) if _has_mixed_product(a) else torch.bmm(a, b)


def _has_mixed_product(x: Tensor) -> bool:
    """Whether matrices like ``x`` are multiplied into a float32 result at the speed of half precision."""
    return _MIXED_PRODUCT and x.dtype in (torch.float16, torch.bfloat16) and x.device.type == "cuda"


def _check_tokens(x: Tensor, batch: int, tokens: int) -> None:
    if x.dim() != 3 or x.shape[0] != batch or x.shape[1] != tokens:
        raise InvalidSetting(
            f"The features have shape {list(x.shape)}, but the matching is for [{batch}, {tokens}, channels]."
        )


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


@dataclass(frozen=True)
class Merging(Reduction):
    """Bipartite soft matching (ToMe, arXiv 2303.17604)."""

    matching: Matching
    name = "merge"
    help = "merges similar tokens (ToMe)"
    action = translatable("merge {share:.0%} of the tokens")
    shrinks_queries = True
    serves_other_layers = True
    uses_cells = True

    @classmethod
    def plan(cls, tokens: Tensor, call: BlockCall) -> Merging:
        partition = call.partition or _drawn(call, call.block, tokens.device)
        return cls(match(tokens, partition, call.ratio))

    @classmethod
    def draw(cls, call: BlockCall, blocks: Tensor) -> list[Partition]:
        destinations, sources = (part.expand(len(blocks), -1) for part in _drawn(call, blocks, blocks.device))
        return [Partition(*parts) for parts in zip(destinations.unbind(), sources.unbind(), strict=True)]

    @property
    def tokens(self) -> int:
        return self.matching.kept_as.shape[1]

    @property
    def kept(self) -> int:
        return self.matching.starts.shape[1]

    def fits(self, x: Tensor) -> bool:
        return x.dim() == 3 and x.shape[:2] == self.matching.kept_as.shape

    def reduce(self, x: Tensor) -> Tensor:
        return merge(x, self.matching)

    def restore(self, y: Tensor) -> Tensor:
        return unmerge(y, self.matching)


def _drawn(call: BlockCall, block: int | Tensor, device: torch.device) -> Partition:
    height, width, settings = call.height, call.width, call.settings
    sx, sy, offsets = settings.sx, settings.sy, None
    if settings.use_rand:
        cells = (height // sy) * (width // sx)
        offsets = choices(cells, sx * sy, seed=settings.seed, step=call.step, block=block, device=device)
    return partition_tokens(height, width, sx=sx, sy=sy, offsets=offsets, device=device)
