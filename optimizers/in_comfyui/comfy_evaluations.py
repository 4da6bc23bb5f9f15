"""Where a model call stands in its sampling run, and the predictions between which something is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from torch import Tensor, int64, zeros

from ..core.not_copied import Function
from ..token_merging.kept import SamplingStep
from .run.comfy_technique import ModelCall
from .run.sampling_run import SamplingRun, TakesPart, stands_at

_numbers = count()
"""Tells predictions apart, also those of several runs."""


@dataclass
class Evaluations(TakesPart):
    """The predictions of one sampling run.

    Attributes:
        windows: whether the network sees the frames in windows, which move under the same conditionings.
        latest: the one that is made; None before the first.
        batch: pictures of the whole latent.
    """

    windows: bool
    latest: SamplingStep | None = None
    batch: int = 0
    begun: int = field(default_factory=_numbers.__next__)

    def evaluates(self, run: SamplingRun, guider: object, x: Tensor, timestep: Tensor, compute: Function) -> Any:
        sigma, active = stands_at(run, guider, timestep)
        self.batch = x.shape[0]
        # A sampler that begins again, because its steps were spoiled, must find nothing of them.
        self.latest = SamplingStep(run.levels, next(_numbers), sigma, (self.begun, active), whole=run.whole)
        return compute()


def step_of(call: ModelCall) -> Tensor:
    """Return the number of the sampling step as an int64 scalar tensor on the sampling device.

    It is found from the noise level, so that the positive and the negative pass of a step get the same number however
    ComfyUI batches them. Solvers that evaluate between two steps get the nearer one; outside of a sampler it is zero. A
    tensor, so that nothing waits for the GPU and nothing recompiles.
    """
    sigmas: Tensor | None = call.transformer_options.get("sample_sigmas")
    if sigmas is None:
        return zeros((), dtype=int64, device=call.sigmas.device)
    return (sigmas - call.sigmas.flatten()[0].to(sigmas)).abs().argmin()
