"""TeaCache (https://arxiv.org/abs/2411.19108), written from the paper for these benchmarks: a rival of Reuse Steps.

How much the first block's modulated input changes from step to step foretells how much the output does, by a
polynomial that is fitted to the model. While the foretold changes since the last computed step add up to less than a
threshold, the blocks are left out, and what they added last is added again. The first and last step are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy
from torch import Tensor, nn

DEGREE = 4


def changed(now: Tensor, before: Tensor) -> float:
    """Return the relative distance of the paper: mean difference by mean size."""
    return float((now - before).abs().mean() / before.abs().mean())


class Blocks(nn.Module):
    """All blocks of a transformer of diffusers as one that is left out where ``threshold`` allows it.

    ``indicators`` and ``outputs`` are those of the run so far.
    """

    def __init__(self, blocks: nn.ModuleList, steps: int, threshold: float, foretold: Callable[[float], float]) -> None:
        super().__init__()
        self._blocks, self._steps, self._threshold, self._foretold = blocks, steps, threshold, foretold
        self._added: Tensor | None = None
        self._sum = 0.0
        self.indicators: list[Tensor] = []

    def forward(self, hidden: Tensor, mask: Tensor | None, places: Tensor, level: Tensor) -> Tensor:
        if len(self.indicators) == self._steps:
            self.indicators.clear()
        self.indicators.append(self._blocks[0].norm1(hidden, level)[0])
        number = len(self.indicators)
        if 1 < number < self._steps:
            self._sum += self._foretold(changed(*self.indicators[:-3:-1]))
            if self._sum < self._threshold:
                return hidden + self._added
        self._sum, given = 0.0, hidden
        for block in self._blocks:
            hidden = block(hidden, mask, places, level)
        self._added = hidden - given
        return hidden


def teacache(transformer: Any, steps: int, threshold: float, foretold: Callable[[float], float] = float) -> Blocks:
    """Put TeaCache on a transformer whose blocks are called as those of Lumina 2; a threshold of 0 skips nothing."""
    blocks = Blocks(transformer.layers, steps, threshold, foretold)
    transformer.layers = nn.ModuleList([blocks])
    return blocks


def fitted(transformer: Any, steps: int, runs: Iterable[Callable[[], object]]) -> Callable[[float], float]:
    """Return the polynomial from changes of the input to those of the output, fitted to ``runs`` of the model."""
    blocks, outputs, seen = teacache(transformer, steps, 0.0), [], []
    hook = transformer.register_forward_hook(lambda _module, _given, output: outputs.append(output[0]))
    for run in runs:
        outputs.clear()
        run()
        for inside, outside in zip(pairwise(blocks.indicators), pairwise(outputs), strict=True):
            seen.append((changed(*inside[::-1]), changed(*outside[::-1])))
    hook.remove()
    return numpy.poly1d(numpy.polyfit(*zip(*seen, strict=True), DEGREE))
