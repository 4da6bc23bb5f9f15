"""Fewer keys and values: attention looks at a coarser grid of the image, every query stays.

After ToDo (Smith et al., https://arxiv.org/abs/2402.13573): neighbouring tokens are much alike. Nothing is matched,
spread again or drawn, and all shapes are static. Unlike there, the last row and column always stay: trained models rest
much of their attention on tokens at the border, and a grid without one can lose the whole picture
(benchmarks/TRIED.md: 10 dB instead of 45 on one of two trained models).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# CPU: leaving out keys and values shortens a self-attention even at 64 tokens (benchmarks/TRIED.md), but levels that
# coarse are under one per cent of a step and hold the meaning of the picture. Elsewhere: not measured yet; published
# measurements of ToDo against FlashAttention begin to gain at 4096 tokens.
MINIMUM_TOKENS = {"cpu": 256}
MINIMUM_TOKENS_ELSEWHERE = 4096


def minimum_tokens(device_type: str) -> int:
    """Return from how many tokens in a block on leaving out keys and values gains time on a type of devices."""
    return MINIMUM_TOKENS.get(device_type, MINIMUM_TOKENS_ELSEWHERE)


@dataclass(frozen=True)
class FewerKeys:
    """Which of ``tokens`` keys and values stay: ``index``, int64, ascending."""

    tokens: int
    index: Tensor

    @property
    def kept(self) -> int:
        return self.index.shape[0]

    def reduce(self, x: Tensor) -> Tensor:
        """``[batch, tokens, channels]`` -> ``[batch, kept, channels]``."""
        return x.index_select(1, self.index)


def fewer_keys(height: int, width: int, ratio: float, device: torch.device, even: bool = False) -> FewerKeys:
    """Return which places of a grid of tokens stay, so that about ``1 - ratio`` of them do.

    ``even``: without the last row and column, each kept token for as many of the picture. They would count twice, which
    moves the picture more; where the difference is kept, what is lost without them is in it.
    """
    rows, columns = (_places(side, ratio, even, device) for side in (height, width))
    return FewerKeys(height * width, (rows[:, None] * width + columns).flatten())


def _places(side: int, ratio: float, even: bool, device: torch.device) -> Tensor:
    """Return which rows or columns stay: spread evenly, as torch's "nearest" interpolation has them, and the last."""
    evenly = max(1, round(side * math.sqrt(1.0 - ratio)))
    if even:
        return torch.arange(evenly, device=device) * side // evenly
    if evenly + 1 >= side:
        return torch.arange(side, device=device)
    place = torch.arange(evenly + 1, device=device)
    # The place after the last even one would be `side`; one less is the last. A smaller-of-two would say the same, but
    # inductor cannot compile that in an index that begins behind the tokens of a text.
    return (place * side - place // evenly) // evenly
