"""Where in the sampling schedule a model call stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .....core.calls import Function
from .....core.shared import Shared
from ....samplers import sampler_of
from ..structure.protocols import Executor, Options
from .run import run_data
from .technique import KEY, ComfyTechnique, ModelCall

STEPS = "sampling_steps"
"""Key of the ``SamplingSteps`` in the store of a sampling run."""


class SamplingSteps:
    """Noise levels of a sampling run, known without asking the GPU in each step, which would wait for it.

    ``done``: steps the sampler has reported; 0 also where it cannot be followed. ``limits``: noise levels, by model and
    percentage of the schedule.
    """

    def __init__(self, sigmas: torch.Tensor) -> None:
        self._sigmas = sigmas
        self._read: list[float] | None = None
        self.done = 0
        self.limits: dict[tuple[int, float], float] = {}

    @property
    def sigmas(self) -> list[float]:
        """The noise levels of the schedule, read from the device when they are asked for first."""
        if self._read is None:
            self._read = self._sigmas.tolist()
        return self._read


def noise_level(run: Mapping[str, Any], given: torch.Tensor) -> float:
    """Return the noise level of a call in a run that was given it as ``[batch]``.

    In the first step it is read, with the schedule: nothing else is at work then, and some samplers move the first
    noise level.
    """
    steps: SamplingSteps | None = run.get(STEPS)
    known = [] if steps is None else steps.sigmas
    return known[steps.done] if steps is not None and 0 < steps.done < len(known) else float(given.flatten()[0])


class Scheduled(ComfyTechnique[ModelCall]):
    """A technique that asks where in the schedule a model call stands."""

    def wrappers(self) -> tuple[tuple[str, Function], ...]:
        from comfy.patcher_extension import WrappersMP

        return ((WrappersMP.SAMPLER_SAMPLE, sampler_sample),)


def sampler_sample(executor: Executor, *args: Any, **kwargs: Any) -> object:
    """Begin a run, and count the steps of samplers that can be followed (ComfyUI's SAMPLER_SAMPLE wrapper)."""
    steps, options = SamplingSteps(args[1]), args[2]["model_options"]
    run_data(options)[STEPS] = steps
    if len(args) < 4 or not _can_be_followed(executor.class_obj, options):  # a wrapper of others may name the callback
        return executor(*args, **kwargs)
    callback = args[3]

    def count(step: int, *rest: object) -> None:
        steps.done = step + 1
        if callback is not None:
            callback(step, *rest)

    return executor(*args[:3], count, *args[4:], **kwargs)


def _can_be_followed(sampler: Any, model_options: Options) -> bool:
    from comfy.k_diffusion import sampling
    from comfy.patcher_extension import WrappersMP
    from comfy.samplers import KSAMPLER

    if type(sampler) is not KSAMPLER or "model_function_wrapper" in model_options:
        return False
    name = getattr(sampler.sampler_function, "__name__", "").removeprefix("sample_")
    # All other samplers have to be asked for the noise level of each call: they also call between two steps.
    ours = sampler_of(name).once_a_step and sampler.sampler_function is getattr(sampling, f"sample_{name}", None)
    # Wrappers of others could hand on another noise level than the sampler's.
    kinds = (WrappersMP.SAMPLER_SAMPLE, WrappersMP.PREDICT_NOISE, WrappersMP.CALC_COND_BATCH, WrappersMP.APPLY_MODEL)
    wrappers = model_options["transformer_options"].get("wrappers", {})
    foreign = any(key != KEY and found for kind in kinds for key, found in wrappers.get(kind, {}).items())
    return ours and not foreign and not sampler.extra_options.get("s_churn")


class SchedulePosition(Shared):
    """Reads the schedule and the noise level of one model call when they are asked for: both can be on the GPU."""

    def __init__(self, call: ModelCall) -> None:
        self._call = call
        self._steps: SamplingSteps | None = call.run.get(STEPS)
        self._sigmas: torch.Tensor | None = call.transformer_options.get("sample_sigmas")

    def index(self) -> torch.Tensor:
        """Return the number of the sampling step as an int64 scalar tensor on the sampling device.

        It is found from the noise level, so that the positive and the negative pass of a step get the same number
        however ComfyUI batches them. Solvers that evaluate between two steps get the nearer one; outside of a sampler
        it is zero. A tensor, so that nothing waits for the GPU and nothing recompiles.
        """
        if self._sigmas is None:
            return torch.zeros((), dtype=torch.int64, device=self._call.sigmas.device)
        sigma: torch.Tensor = self._call.sigmas.flatten()[0].to(self._sigmas)
        return (self._sigmas - sigma).abs().argmin()

    def is_between(self, start_percent: float, end_percent: float) -> bool:
        """Return whether the call lies between two points of the schedule: 0 is the start, 1 the end of denoising.

        By the model's own ``percent_to_sigma``, as in ComfyUI's conditioning ranges.
        """
        last, first = self.limits(start_percent, end_percent)
        return last < noise_level(self._call.run, self._call.sigmas) <= first

    def limits(self, start_percent: float, end_percent: float) -> tuple[float, float]:
        """Return the noise levels of two points of the schedule, the lower one first."""
        return self._limit(end_percent), self._limit(start_percent)

    def _limit(self, percent: float) -> float:
        sampling = self._call.model.model_sampling
        limits = {} if self._steps is None else self._steps.limits
        key = (id(sampling), percent)
        if key not in limits:  # its tables can be on the GPU too
            limits[key] = float(sampling.percent_to_sigma(percent))
        return limits[key]
