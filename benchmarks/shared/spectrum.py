"""Spectrum (https://arxiv.org/abs/2603.01623), written from the paper for these benchmarks: a rival of Reuse Steps.

The network's output over time is taken for a sum of Chebyshev polynomials, fitted by ridge regression to all outputs
that were computed, and mixed half and half with the straight line through the last two, as the authors advise since
(https://github.com/hanjq17/Spectrum). After a warm-up every N-th step is computed, and N grows with each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .trained import Apply, Bench

WARM_UP = 5
FIRST_WINDOW = 2.0
DEGREE = 4
RIDGE = 0.1
MIX = 0.5
"""Of the polynomials; the rest is the straight line's."""


def weights(known: Sequence[int], wanted: int, steps: int) -> Tensor:
    """Return with which weights earlier outputs make up a forecast, ``[known]``, double precision."""
    basis = _chebyshev(torch.tensor([*known, wanted], dtype=torch.float64) * 2 / steps - 1)
    rows, row = basis[:-1], basis[-1]
    fitted = torch.linalg.solve(rows.T @ rows + RIDGE * torch.eye(DEGREE + 1, dtype=torch.float64), row)
    line = torch.zeros(len(known), dtype=torch.float64)
    ahead = (wanted - known[-1]) / (known[-1] - known[-2])
    line[-1], line[-2] = 1 + ahead, -ahead
    return MIX * (rows @ fitted) + (1 - MIX) * line


def _chebyshev(places: Tensor) -> Tensor:
    """Return the polynomials' values at ``places`` in -1..1, ``[places, DEGREE + 1]``."""
    found = [torch.ones_like(places), places]
    while len(found) <= DEGREE:
        found.append(2 * places * found[-1] - found[-2])
    return torch.stack(found, 1)


class Run:
    """One sampling run; ``growth``: of the window, with each computed step after the warm-up."""

    def __init__(self, steps: int, growth: float) -> None:
        self._steps, self._growth = steps, growth
        self._window, self._step, self._in_a_row = FIRST_WINDOW, -1, 0
        self._known: dict[int, Tensor] = {}

    def step(self, compute: Callable[[], Tensor]) -> Tensor:
        """Return the output of the next step, computed or forecast."""
        self._step += 1
        if self._step >= WARM_UP and (self._in_a_row + 1) % math.floor(self._window):
            self._in_a_row += 1
            shares = weights(list(self._known), self._step, self._steps).tolist()
            total = torch.zeros_like(next(iter(self._known.values())))
            for share, output in zip(shares, self._known.values(), strict=True):
                total.add_(output, alpha=share)
            return total
        if self._step >= WARM_UP:
            self._window, self._in_a_row = self._window + self._growth, 0
        output = compute()
        self._known[self._step] = output.float()
        return output


def spectrum(bench: Bench, growth: float) -> Apply:
    """Return what puts Spectrum on a model; of solvers with one evaluation in a step.

    It forecasts what the network returns, as packs for ComfyUI do. What goes into the last layer, as in the paper, was
    farther on the icon model: 24.6 instead of 30.2 dB with ``euler``, 30 steps and the default growth. ``growth``: the
    paper's alpha; the authors' default is 0.75.
    """
    from comfy.patcher_extension import WrappersMP

    def apply(patcher: Any) -> Any:
        run = Run(bench.solver.steps, growth)

        def forward(executor: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Any:
            return run.step(lambda: executor(x, *args, **kwargs)).to(x.dtype)

        clone = patcher.clone()
        clone.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "spectrum", forward)
        return clone

    return apply
