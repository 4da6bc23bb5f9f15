"""What a method of reducing tokens needs, and what it does in a block.

To add one: a file with a `Reduction` in it, its line in `METHODS`, a sentence on the node's help page and a test.
Settings, hosts and the node's tooltip read everything else from the class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .grid import Partition


class BlockCall(NamedTuple):
    """One block in one model call.

    Attributes:
        height, width: rows and columns of tokens.
        ratio: share of the tokens to take away in this block, 0 to 1.
        settings: ``TokenMergingSettings``, of which a method reads the cells: ``sx``, ``sy``, ``use_rand``, ``seed``.
        step: number of the sampling step, an int64 scalar tensor where graphs are compiled.
        partition: destinations and sources of this block, if they were drawn for several blocks at once.
    """

    height: int
    width: int
    ratio: float
    settings: Any
    step: int | Tensor = 0
    block: int = 0
    partition: Partition | None = None


class Method(ABC):
    """What a user can choose.

    Attributes:
        name: what workflows save; never changes.
        help: what it does, for the tooltip.
        action: what it does with a share of the tokens, e.g. ``merge {share:.0%} of the tokens``.
        shrinks_queries: True if queries are reduced too, so that the output must be restored.
        serves_other_layers: whether cross-attention and feed-forward layers can have fewer tokens too.
        uses_cells: whether the settings ``sx``, ``sy``, ``use_rand`` and ``seed`` change what it does.
        can_decline: whether it may leave a block as it is because nothing would be gained there.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    action: ClassVar[str]
    shrinks_queries: ClassVar[bool] = False
    serves_other_layers: ClassVar[bool] = False
    uses_cells: ClassVar[bool] = False
    can_decline: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def for_block(cls, tokens: int, device_type: str, other_layers: bool) -> type[Reduction] | None:
        """Return what reduces a block of this many tokens on e.g. ``cuda``, or None to leave it as it is.

        ``other_layers``: whether its cross-attention or feed-forward layer shall have fewer tokens too.
        """


class Reduction(Method):
    """How the tokens of one block are reduced in one model call: the class is the method, an instance its result."""

    @classmethod
    def for_block(cls, tokens: int, device_type: str, other_layers: bool) -> type[Reduction] | None:
        return cls

    @classmethod
    def beside_residual(cls) -> type[Reduction]:
        """Return what takes its place where the difference that it makes is kept and added."""
        return cls

    @classmethod
    @abstractmethod
    def plan(cls, tokens: Tensor, call: BlockCall) -> Reduction:
        """Decide how tokens ``[batch, height * width, channels]`` are reduced."""

    @classmethod
    def prepare(cls, call: BlockCall, device: torch.device) -> Reduction | None:
        """Return what `plan` returns, where the tokens are not needed for it; else None.

        Made once for a sampling run, it serves all blocks of one size and ratio: the result must not depend on step and
        block.
        """
        return None

    @classmethod
    def draw(cls, call: BlockCall, blocks: Tensor) -> Sequence[Partition | None]:
        """Return destinations and sources of several blocks, int64 ``[blocks, 1]``, at once; None where it has none."""
        return [None] * len(blocks)

    @property
    @abstractmethod
    def tokens(self) -> int:
        """How many tokens it was made for."""

    @property
    @abstractmethod
    def kept(self) -> int:
        """How many of them are left."""

    def fits(self, x: Tensor) -> bool:
        """Return whether it can reduce ``x``: as many tokens, and of as many pictures where that counts."""
        return x.dim() == 3 and x.shape[1] == self.tokens

    @abstractmethod
    def reduce(self, x: Tensor) -> Tensor:
        """``[batch, tokens, channels]`` -> ``[batch, kept, channels]``."""

    def restore(self, y: Tensor) -> Tensor:
        """``[batch, kept, channels]`` -> ``[batch, tokens, channels]``; only if queries shrink."""
        return y
