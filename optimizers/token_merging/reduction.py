"""The methods behind one interface: make attention smaller, run it, make its output whole again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .grid import partition_tokens, random_offsets
from .kv_downsample import downsample_tokens, downsampled_side
from .local_merge import LocalMatching, match_locally, merge_locally, unmerge_locally, windows_of
from .matching import Matching, match, merge, unmerge
from .settings import TokenMergingSettings


class Reduction(ABC):
    """How the tokens of one block are reduced in one model call.

    Attributes:
        shrinks_queries: True if queries are reduced too, so that the output must be restored; False if only keys and
            values are, and every query keeps its own output.
    """

    shrinks_queries: ClassVar[bool]

    @property
    @abstractmethod
    def tokens(self) -> int:
        """How many tokens it was made for."""

    @property
    @abstractmethod
    def kept(self) -> int:
        """How many tokens are left of them."""

    @abstractmethod
    def reduce(self, x: Tensor) -> Tensor:
        """``[batch, tokens, channels]`` -> ``[batch, kept, channels]``."""

    @abstractmethod
    def restore(self, y: Tensor) -> Tensor:
        """``[batch, kept, channels]`` -> ``[batch, tokens, channels]``; only if queries shrink."""


@dataclass(frozen=True)
class Merging(Reduction):
    """Bipartite soft matching (ToMe, arXiv 2303.17604)."""

    matching: Matching
    shrinks_queries: ClassVar[bool] = True

    @property
    def tokens(self) -> int:
        """How many tokens it was made for."""
        return self.matching.slot_of_token.shape[1]

    @property
    def kept(self) -> int:
        """How many tokens are left."""
        return self.matching.token_of_slot.shape[1]

    def reduce(self, x: Tensor) -> Tensor:
        """Average the tokens of each slot."""
        return merge(x, self.matching)

    def restore(self, y: Tensor) -> Tensor:
        """Give each token its slot's value."""
        return unmerge(y, self.matching)


@dataclass(frozen=True)
class LocalMerging(Reduction):
    """Dense products inside of windows (after ToMA, arXiv 2509.10918)."""

    matching: LocalMatching
    shrinks_queries: ClassVar[bool] = True

    @property
    def tokens(self) -> int:
        """How many tokens it was made for."""
        return self.matching.windows.height * self.matching.windows.width

    @property
    def kept(self) -> int:
        """How many tokens are left."""
        windows = self.matching.windows
        return windows.rows * windows.columns * self.matching.merge_weights.shape[1]

    def reduce(self, x: Tensor) -> Tensor:
        """Mix each window's tokens into its destinations."""
        return merge_locally(x, self.matching)

    def restore(self, y: Tensor) -> Tensor:
        """Mix each token from its window's destinations."""
        return unmerge_locally(y, self.matching)


@dataclass(frozen=True)
class KVDownsampling(Reduction):
    """Keys and values on a coarser grid (ToDo, arXiv 2402.13573)."""

    height: int
    width: int
    ratio: float
    shrinks_queries: ClassVar[bool] = False

    @property
    def tokens(self) -> int:
        """How many tokens it was made for."""
        return self.height * self.width

    @property
    def kept(self) -> int:
        """How many keys and values are left."""
        return downsampled_side(self.height, self.ratio) * downsampled_side(self.width, self.ratio)

    def reduce(self, x: Tensor) -> Tensor:
        """Leave out rows and columns of keys and values."""
        return downsample_tokens(x, self.height, self.width, self.ratio)

    def restore(self, y: Tensor) -> Tensor:
        """Return the output as it is: there is one for every query."""
        return y


def plan_reduction(
    tokens: Tensor,
    height: int,
    width: int,
    settings: TokenMergingSettings,
    *,
    method: str,
    ratio: float,
    step: int | Tensor,
    block: int,
) -> Reduction:
    """Decide how one block's tokens are reduced.

    Args:
        tokens: ``[batch, height * width, channels]``; looked at by the methods that match.
        height: rows of tokens.
        width: columns of tokens.
        settings: cells, seed and the rest.
        method: ``merge``, ``local_merge`` or ``kv_downsample``; not ``auto``.
        ratio: share of the tokens to take away in this block, 0 to 1.
        step: number of the sampling step, an int64 scalar tensor where graphs are compiled.
        block: number of the block in the model.

    Raises:
        InvalidSetting: if the sizes do not fit.
    """
    if method == "kv_downsample":
        return KVDownsampling(height, width, ratio)
    if method == "local_merge":
        return LocalMerging(match_locally(tokens, windows_of(height, width), ratio))
    offsets = None
    if settings.use_rand:
        offsets = random_offsets(
            height, width, sx=settings.sx, sy=settings.sy, seed=settings.seed, step=step, block=block,
            device=tokens.device,
        )  # fmt: skip
    partition = partition_tokens(height, width, sx=settings.sx, sy=settings.sy, offsets=offsets, device=tokens.device)
    return Merging(match(tokens, partition, ratio))
