"""Fewer keys and values: attention looks at a coarser grid of the image, every query stays.

After ToDo (Smith et al., https://arxiv.org/abs/2402.13573): neighbouring tokens are much alike. Nothing is matched,
spread again or drawn, and all shapes are static. Unlike there, the last row and column always stay: trained models rest
much of their attention on tokens at the border, and a grid without one can lose the whole picture
(benchmarks/TRIED.md: 10 dB instead of 45 on one of two trained models).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core.errors import InvalidSetting
from ...core.phrases import translatable
from .method import BlockCall, Reduction


@dataclass(frozen=True)
class KVDownsampling(Reduction):
    """Image tokens on a coarser, regular grid that has the borders.

    ``ratio``: share of the tokens to leave out, 0 to 1; 0.75 keeps every second row and column, and the last ones.
    ``index``: which tokens stay, if that has been worked out; compiled code works it out while it gathers.
    """

    height: int
    width: int
    ratio: float
    index: Tensor | None = field(default=None, compare=False)
    name = "kv_downsample"
    help = "leaves out keys and values (ToDo)"
    action = translatable("leave out {share:.0%} of the keys and values")

    @classmethod
    def plan(cls, tokens: Tensor, call: BlockCall) -> KVDownsampling:
        return cls(call.height, call.width, call.ratio)

    @classmethod
    def prepare(cls, call: BlockCall, device: torch.device) -> KVDownsampling:
        index = cls.kept_tokens(call.height, call.width, call.ratio, device)
        return cls(call.height, call.width, call.ratio, index)

    @classmethod
    def kept_tokens(cls, height: int, width: int, ratio: float, device: torch.device) -> Tensor:
        rows, columns = cls.places(height, ratio, device), cls.places(width, ratio, device)
        return (rows[:, None] * width + columns).flatten()

    @classmethod
    def beside_residual(cls) -> type[Reduction]:
        return EvenDownsampling

    @property
    def tokens(self) -> int:
        return self.height * self.width

    @property
    def kept(self) -> int:
        if self.index is not None:
            return self.index.shape[0]
        rows, columns = (self.kept_side(side, self.ratio) for side in (self.height, self.width))
        return rows * columns

    @classmethod
    def kept_side(cls, side: int, ratio: float) -> int:
        """Return how many of ``side`` rows (or columns) stay, so that about ``1 - ratio`` of all tokens do."""
        evenly = _evenly(side, ratio)
        return min(side, evenly + 1) if evenly < side else side

    @classmethod
    def places(cls, side: int, ratio: float, device: torch.device) -> Tensor:
        """Return those that stay: spread evenly, as torch's "nearest" interpolation has them, and the last one."""
        kept = cls.kept_side(side, ratio)
        if kept == side:
            return torch.arange(side, device=device)
        place, last = torch.arange(kept, device=device), max(1, kept - 1)
        # The place after the last even one would be `side`; one less is the last. A smaller-of-two would say the same,
        # but inductor cannot compile that in an index that begins behind the tokens of a text.
        return (place * side - place // last) // last

    def reduce(self, x: Tensor) -> Tensor:
        """Leave out rows and columns of keys and values; ``x`` itself if nothing is left out.

        Raises `InvalidSetting` if ``x`` has another number of tokens.
        """
        if x.shape[1] != self.tokens:
            raise InvalidSetting(f"There are {x.shape[1]} tokens, but {self.height} x {self.width} places.")
        if self.index is not None:
            return x.index_select(1, self.index)
        if self.kept == self.tokens:
            return x
        return x.index_select(1, self.kept_tokens(self.height, self.width, self.ratio, x.device))


class EvenDownsampling(KVDownsampling):
    """The same without the last row and column, each kept token for as many of the picture.

    They would count twice, which moves the picture more; what is lost without them is in the difference that is kept.
    """

    @classmethod
    def kept_side(cls, side: int, ratio: float) -> int:
        return _evenly(side, ratio)

    @classmethod
    def places(cls, side: int, ratio: float, device: torch.device) -> Tensor:
        kept = cls.kept_side(side, ratio)
        return torch.arange(kept, device=device) * side // kept


def _evenly(side: int, ratio: float) -> int:
    return max(1, round(side * math.sqrt(1.0 - ratio)))
