"""Merging as dense products inside of small windows of the image.

After ToMA (Lu et al., ICML 2025, https://arxiv.org/abs/2509.10918): every token is a mix of a few destinations of its
own window, so merging and spreading are small matrix products, without gathering or sorting. Destinations are chosen by
facility location, which takes many small steps and is meant to be shared by blocks and sampling steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import InvalidSetting, require_number
from ...core.phrases import translatable
from .method import BlockCall, Reduction

WINDOW = 8
"""Side of a window in tokens. 64 tokens: large enough for a useful choice, small enough for cheap products."""

TEMPERATURE = 0.1
"""Of the softmax over destinations. Cosines differ by a few tenths within a window: nearly, but not quite, a choice."""


class Windows(NamedTuple):
    """How an image is cut: all Python numbers, so that compiled graphs see constants."""

    height: int
    width: int
    window_height: int
    window_width: int

    @property
    def rows(self) -> int:
        return -(-self.height // self.window_height)

    @property
    def columns(self) -> int:
        return -(-self.width // self.window_width)


@dataclass(frozen=True)
class LocalMerging(Reduction):
    """Weights between the tokens and the destinations of each window; rows sum to 1.

    ``merge_weights``: ``[batch * windows, destinations, places]``; ``unmerge_weights`` swaps the last two axes.
    """

    merge_weights: Tensor
    unmerge_weights: Tensor
    windows: Windows
    name = "local_merge"
    help = "merges within small windows (after ToMA)"
    action = translatable("merge {share:.0%} of the tokens")
    shrinks_queries = True
    serves_other_layers = True
    needs_matching = True

    @classmethod
    def plan(cls, tokens: Tensor, call: BlockCall) -> LocalMerging:
        return cls.match(tokens, windows_of(call.height, call.width), call.ratio)

    @classmethod
    @torch.no_grad()
    def match(cls, metric: Tensor, windows: Windows, ratio: float) -> LocalMerging:
        """Choose each window's destinations, and how its tokens are made of them.

        ``metric``: ``[batch, tokens, channels]``, compared by the cosine of the channels. ``ratio``: share of each
        window's tokens to merge away, 0 to 1; one always stays. Raises `InvalidSetting` if ``metric`` has another
        number of tokens than ``windows``, or ``ratio`` is out of range.
        """
        require_number("ratio", ratio, 0.0, 1.0)
        precise = metric.to(torch.promote_types(metric.dtype, torch.float32))
        tokens = F.normalize(_cut(precise, windows), dim=-1)  # [B * W, places, channels]
        places = tokens.shape[1]
        present = _cut(metric.new_ones(1, metric.shape[1], 1), windows)[..., 0].bool()  # padding is False
        present = present.repeat(metric.shape[0], 1)
        similarity = torch.bmm(tokens, tokens.transpose(1, 2))  # [B * W, places, places]
        destinations = _facility_location(similarity, present, max(1, round(places * (1.0 - ratio))))
        to_destinations = similarity.gather(2, destinations[:, None, :].expand(-1, places, -1))
        unmerge_weights = (to_destinations / TEMPERATURE).softmax(dim=-1)
        merge_weights = unmerge_weights.transpose(1, 2) * present[:, None, :]
        merge_weights = merge_weights / merge_weights.sum(dim=-1, keepdim=True).clamp_min(1e-6)
        return cls(merge_weights.to(metric.dtype), unmerge_weights.to(metric.dtype), windows)

    @property
    def tokens(self) -> int:
        return self.windows.height * self.windows.width

    @property
    def kept(self) -> int:
        return self.windows.rows * self.windows.columns * self.merge_weights.shape[1]

    def reduce(self, x: Tensor) -> Tensor:
        """Mix each window's tokens into its destinations: ``[batch, windows * destinations, channels]``."""
        return torch.bmm(self.merge_weights, _cut(x, self.windows)).reshape(x.shape[0], -1, x.shape[-1])

    def restore(self, y: Tensor) -> Tensor:
        batch, _, channels = y.shape
        spread = torch.bmm(self.unmerge_weights, y.reshape(-1, self.unmerge_weights.shape[-1], channels))
        return _join(spread, batch, self.windows)


def windows_of(height: int, width: int) -> Windows:
    """Cut an image into windows of about `WINDOW` tokens a side, as equal as possible."""
    rows, columns = -(-height // WINDOW), -(-width // WINDOW)
    return Windows(height, width, -(-height // rows), -(-width // columns))


def _facility_location(similarity: Tensor, present: Tensor, count: int) -> Tensor:
    """Choose greedily the ``count`` tokens to which all tokens of a window are most similar in sum.

    ``similarity``: ``[windows, places, places]``; ``present``: ``[windows, places]``, False where a window hangs over
    the edge of the image. Returns int64 ``[windows, count]``.
    """
    # The smallest cosine: nothing is gained for padding, whatever is chosen.
    covered = similarity.new_full((*present.shape, 1), -1.0)
    # How well each token would be covered if the other one were chosen next. So what a choice covers is a column of it.
    reach = similarity.masked_fill(~present[:, :, None], -1.0).clamp_min_(-1.0)
    # Padding and what is taken already come last; a window with fewer tokens than destinations takes padding.
    bonus = present.to(similarity.dtype)
    chosen = []
    # Every operator here is launched ``count`` times for each matching: seven are what one choice needs. Five would do
    # with a matrix product that sums ``reach``, as ``covered`` is the same for all. But it rounds sums that are larger,
    # and where two tokens are nearly as good, that is another choice and another picture.
    for left in range(count, 0, -1):
        best = (reach - covered).sum(dim=1).add_(bonus).argmax(dim=-1, keepdim=True)
        chosen.append(best)
        if left == 1:
            break  # nobody asks what it covers
        bonus.scatter_(1, best, -4.0 * similarity.shape[1])
        covered = reach.gather(2, best[:, None, :].expand(-1, similarity.shape[1], -1))
        reach = torch.maximum(reach, covered)
    return torch.cat(chosen, dim=1)


def _cut(x: Tensor, windows: Windows) -> Tensor:
    """``[batch, tokens, channels]`` -> ``[batch * windows, places, channels]``, zeros beyond the edge."""
    batch, tokens, channels = x.shape
    height, width, high, wide = windows
    rows, columns = windows.rows, windows.columns
    if tokens != height * width:
        raise InvalidSetting(f"There are {tokens} tokens, but the windows are for {height} x {width}.")
    grid = x.view(batch, height, width, channels)
    if (rows * high, columns * wide) != (height, width):
        grid = F.pad(grid, (0, 0, 0, columns * wide - width, 0, rows * high - height))
    grid = grid.view(batch, rows, high, columns, wide, channels).transpose(2, 3)
    return grid.reshape(batch * rows * columns, high * wide, channels)


def _join(x: Tensor, batch: int, windows: Windows) -> Tensor:
    height, width, high, wide = windows
    rows, columns = windows.rows, windows.columns
    grid = x.view(batch, rows, columns, high, wide, x.shape[-1]).transpose(2, 3)
    grid = grid.reshape(batch, rows * high, columns * wide, x.shape[-1])[:, :height, :width]
    return grid.reshape(batch, height * width, x.shape[-1])
