"""Where a sampling run begins, and each prediction in it, for techniques that keep something from one to the next."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count
from typing import Any

from torch import Tensor

from ....token_merging.residual import SamplingStep
from ..runtime.run import RUN, taking_part
from ..runtime.schedule import STEPS, SamplingSteps, noise_level
from ..structure.protocols import Executor, Options

EVALUATIONS = "evaluations"
"""Key of the `Evaluations` in the store of a sampling run."""

WHOLE = "whole"
"""Key of what decides there, instead of the schedule, whether the next prediction is made of a full step."""


_numbers = count()
"""Tells predictions apart, also those of several runs."""


class Evaluations:
    """The predictions of one sampling run.

    Attributes:
        latest: the one that is made; None before the first.
        batch: pictures of the whole latent.
        steps: of the run.
        windows: whether the network sees the frames in windows, which move under the same conditionings.
    """

    def __init__(self, steps: SamplingSteps, windows: bool) -> None:
        self.latest: SamplingStep | None = None
        self.batch = 0
        self.steps, self.windows = steps, windows
        self._first = next(_numbers)

    def begin(self, sigma: float, batch: int, active: Hashable, whole: bool | None) -> None:
        self.batch = batch
        # A sampler that begins again, because its steps were spoiled, must find nothing of them.
        self.latest = SamplingStep(self.steps.sigmas, next(_numbers), sigma, (self._first, active), whole=whole)


def predict_noise(executor: Executor, x: Tensor, timestep: Tensor, *args: Any, **kwargs: Any) -> object:
    """Begin a prediction (ComfyUI's PREDICT_NOISE wrapper)."""
    options: Options = args[0] if args else kwargs.get("model_options", {})
    run = options.get("transformer_options", {}).get(RUN, {})
    steps: SamplingSteps | None = run.get(STEPS)
    if steps is not None:
        evaluations: Evaluations | None = run.get(EVALUATIONS)
        if evaluations is None or evaluations.steps is not steps:
            evaluations = run[EVALUATIONS] = Evaluations(steps, "context_handler" in options)
        sigma, conds = noise_level(run, timestep), getattr(executor.class_obj, "conds", {})
        evaluations.begin(sigma, x.shape[0], tuple(taking_part(conds, sigma)), run.get(WHOLE))
    return executor(x, timestep, *args, **kwargs)
