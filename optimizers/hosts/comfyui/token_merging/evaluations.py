"""Where a model call stands in its sampling run, and the predictions between which something is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from torch import Tensor, int64, zeros

from .....core.shared import Function, Shared
from ....token_merging.residual import SamplingStep
from ..runtime.run import SamplingRun, TakesPart, stands_at
from ..runtime.technique import ModelCall

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


class SchedulePosition(Shared):
    """Reads the schedule and the noise level of one model call when they are asked for: both can be on the GPU."""

    def __init__(self, call: ModelCall) -> None:
        self._call = call
        self._sigmas: Tensor | None = call.transformer_options.get("sample_sigmas")

    def index(self) -> Tensor:
        """Return the number of the sampling step as an int64 scalar tensor on the sampling device.

        It is found from the noise level, so that the positive and the negative pass of a step get the same number
        however ComfyUI batches them. Solvers that evaluate between two steps get the nearer one; outside of a sampler
        it is zero. A tensor, so that nothing waits for the GPU and nothing recompiles.
        """
        if self._sigmas is None:
            return zeros((), dtype=int64, device=self._call.sigmas.device)
        sigma: Tensor = self._call.sigmas.flatten()[0].to(self._sigmas)
        return (self._sigmas - sigma).abs().argmin()

    def is_between(self, start_percent: float, end_percent: float) -> bool:
        """Return whether the call lies between two points of the schedule: 0 is the start, 1 the end of denoising.

        By the model's own ``percent_to_sigma``, as in ComfyUI's conditioning ranges.
        """
        last, first = self.limits(start_percent, end_percent)
        return last < self._call.run.noise_level(self._call.sigmas) <= first

    def limits(self, start_percent: float, end_percent: float) -> tuple[float, float]:
        """Return the noise levels of two points of the schedule, the lower one first."""
        return self._limit(end_percent), self._limit(start_percent)

    def _limit(self, percent: float) -> float:
        sampling, limits = self._call.model.model_sampling, self._call.run.limits
        key = (id(sampling), percent)
        if key not in limits:  # its tables can be on the GPU too
            limits[key] = float(sampling.percent_to_sigma(percent))
        return limits[key]
