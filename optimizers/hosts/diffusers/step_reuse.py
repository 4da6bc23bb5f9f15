"""Reuse Steps on the UNet or transformer of a pipeline.

The scheduler knows the noise levels, and turns the network's output into the picture without noise: epsilon, v and
flow predictions. Forecasts are made of that picture, as in ComfyUI, and turned back into what the network would say.

A ControlNet is called by the pipeline before the UNet, where nobody knows yet whether the step is left out: it runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ....core.errors import UnsupportedModel
from ...step_reuse.outcome import Outcome
from ...step_reuse.policy import StepReusePolicy, too_few
from ...step_reuse.run import Decision, ReuseRun
from .components import DENOISER
from .host import Technique
from .schedule import SchedulePosition
from .unet import is_unet

if TYPE_CHECKING:
    from ....core.calls import Args, Function, Kwargs
    from .host import Host
    from .patches import Patches
    from .settings import ReuseSteps


EULER = ("EulerDiscreteScheduler", "DDIMScheduler", "FlowMatchEulerDiscreteScheduler")
"""Schedulers whose next latent is made of this one and of one prediction, in the shares of Euler's step."""


class StepReuse(StepReusePolicy, Technique):
    """Forecasts calls of one denoiser.

    Args:
        settings: what was asked for.
    """

    roles = (DENOISER,)

    def __init__(self, settings: ReuseSteps) -> None:
        Technique.__init__(self, settings)
        StepReusePolicy.__init__(self, settings)
        self._position = SchedulePosition()
        self._run: ReuseRun | None = None
        self._made: weakref.ref[Tensor] | None = None
        self._index = -1

    def attach(self, host: Host, patches: Patches) -> None:
        """Check that there is a scheduler to ask.

        Raises:
            UnsupportedModel: for a model on its own, and for networks that also predict a variance.
        """
        scheduler = getattr(host.pipeline, "scheduler", None)
        if scheduler is None:
            raise UnsupportedModel(
                "Reuse Steps must know the noise levels, and a model on its own has no scheduler.",
                "Give the whole pipeline to optimize.",
            )
        if "learned" in str(scheduler.config.get("variance_type", "")):
            raise UnsupportedModel(
                f"{host.component.class_name} predicts a variance too, which Reuse Steps does not forecast.",
                "Leave Reuse Steps out for this pipeline.",
            )
        patches.on_undo(self._end_run)

    def call(self, host: Host, compute: Function, args: Args, kwargs: Kwargs) -> object:
        """Compute one call of the network, or forecast it."""
        sample = kwargs.get("sample", kwargs.get("hidden_states", args[0] if args else None))
        pipeline: Any = host.pipeline
        if not isinstance(sample, Tensor) or pipeline is None:
            return compute(*args, **kwargs)
        run = self._run_at(host, pipeline, kwargs.get("timestep", args[1] if len(args) > 1 else None))
        if run is None:
            return compute(*args, **kwargs)
        guided = bool(getattr(pipeline, "do_classifier_free_guidance", False)) and sample.shape[0] % 2 == 0
        scale = float(getattr(pipeline, "guidance_scale", 1.0)) if guided else None
        place = run.place_of(run.levels[self._index])
        wide = _Prediction.of(pipeline.scheduler, place.sigma)
        latent = wide.latent(sample)
        rows = latent.chunk(2)[1] if guided else latent
        decision = run.begin(place, rows, (tuple(sample.shape), guided), scale)
        slot, passes = run.next_slot(), 2 if guided else 1
        last = self._index == len(run.levels) - 2
        try:
            if run.can_forecast(slot, [True] * passes):
                found = run.forecast(slot, rows)
                found = _shifted(found, run.end(_guided(found, scale)), scale)
                return self._wrap(wide.output(latent, torch.cat(found[::-1])).to(sample.dtype))
            if decision is Decision.GUIDANCE:
                half: Any = compute(*_second_half(args, sample.shape[0]), **_second_half(kwargs, sample.shape[0]))
                positive = wide.denoised(rows, _tensor(half)[:, : rows.shape[1]])
                found = [positive, run.negative_from(positive)]
                result = self._wrap(wide.output(latent, torch.cat(found[::-1])).to(_tensor(half).dtype))
            else:
                result = compute(*args, **kwargs)
                output = _tensor(result)
                if output.shape != latent.shape:
                    return result
                denoised = wide.denoised(latent, output)
                found = list(denoised.chunk(2))[::-1] if guided else [denoised]
                self._kind = result
            run.keep(slot, rows, found)
            guided_now = _guided(found, scale)
            given = run.end(guided_now)
            if given is guided_now:
                return result
            found = _shifted(found, given, scale)
            return self._wrap(wide.output(latent, torch.cat(found[::-1])).to(_tensor(result).dtype))
        finally:
            if last:
                self._end_run()

    def _wrap(self, output: Tensor) -> object:
        """Return an output as the network hands it out: a tuple, or an object with one field."""
        kind = self._kind
        return (output,) if isinstance(kind, tuple) else type(kind)(sample=output)

    def _run_at(self, host: Host, pipeline: Any, timestep: object) -> ReuseRun | None:
        """Return the state of the run that goes on; None where nothing can be left out."""
        timesteps: Tensor = pipeline.scheduler.timesteps
        self._position.moved_to(pipeline, timestep)
        index, before = self._position.index(), self._index
        self._index = index
        if self._made is None or self._made() is not timesteps or index < before:
            self._end_run()
            self._index, self._made = index, weakref.ref(timesteps)
            self.outcome = Outcome()
            levels = _levels(pipeline.scheduler)
            # image to image begins in the middle of the schedule
            solver, unet = _solver(pipeline.scheduler), is_unet(host.component.part)
            self._run = ReuseRun(self.settings, levels, self.outcome, solver, unet)
            remaining = len(levels) - 1 - index
            if remaining < 1 or self._run.too_short or ReuseRun(self.settings, levels[index:]).too_short:
                self.outcome.note(too_few(remaining))
                self._run = None
            else:
                self._follow_plan(pipeline, self._run)
        return self._run

    def _follow_plan(self, pipeline: Any, run: ReuseRun) -> None:
        plan = self.settings.plan
        if plan is None:
            return
        family, sampler = type(pipeline).__name__, type(pipeline.scheduler).__name__
        mismatch = plan.mismatch(family, sampler, len(run.levels) - 1, getattr(pipeline, "guidance_scale", None))
        if mismatch is None:
            run.follow(plan)
        else:
            self.outcome.note(f"{mismatch}: the budget's rule worked without it")

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.close()
        self._run, self._kind = None, None

    _kind: Any = None


@dataclass(frozen=True)
class _Prediction:
    """What a network predicts at one noise level, and the way to the picture without noise and back.

    Attributes:
        kind: ``epsilon``, ``v_prediction``, ``sample`` or ``flow``.
        sigma: noise level; of a flow from 0 to 1, else noise for each unit of picture.
    """

    kind: str
    sigma: float

    @classmethod
    def of(cls, scheduler: Any, sigma: float) -> _Prediction:
        return cls("flow" if _is_flow(scheduler) else str(scheduler.config.get("prediction_type", "epsilon")), sigma)

    @property
    def _signal(self) -> float:
        return float((1.0 + self.sigma**2) ** -0.5)

    def latent(self, sample: Tensor) -> Tensor:
        """Return the picture with its noise, the picture at its own size, from the network's input."""
        return sample.float() if self.kind == "flow" else sample.float() / self._signal

    def denoised(self, latent: Tensor, output: Tensor) -> Tensor:
        """Return the picture without noise that an output stands for."""
        made = output.float()
        if self.kind in ("epsilon", "flow"):
            return latent - self.sigma * made
        if self.kind == "sample":
            return made
        return latent * self._signal**2 - self.sigma * self._signal * made

    def output(self, latent: Tensor, denoised: Tensor) -> Tensor:
        """Return the output that stands for a picture without noise."""
        if self.kind in ("epsilon", "flow"):
            return (latent - denoised) / self.sigma
        if self.kind == "sample":
            return denoised
        return (latent * self._signal**2 - denoised) / (self.sigma * self._signal)


def _is_flow(scheduler: Any) -> bool:
    return "FlowMatch" in type(scheduler).__name__ or scheduler.config.get("prediction_type") == "flow_prediction"


def _levels(scheduler: Any) -> list[float]:
    """Return the noise level of each timestep, and 0 for the end."""
    if _is_flow(scheduler):
        return [*(float(value) for value in scheduler.sigmas[: len(scheduler.timesteps)].tolist()), 0.0]
    kept = scheduler.alphas_cumprod.double().cpu()
    table = ((1 - kept) / kept).sqrt().log()
    places = scheduler.timesteps.double().cpu().clamp(0, len(table) - 1)
    low = places.floor().long()
    high = (low + 1).clamp(max=len(table) - 1)
    found = table[low].lerp(table[high], places - low).exp()
    return [*found.tolist(), 0.0]


def _guided(passes: list[Tensor], scale: float | None) -> Tensor:
    """Return what the pipeline makes of the positive and the negative pass."""
    if scale is None or len(passes) < 2:
        return passes[0]
    return passes[1] + scale * (passes[0] - passes[1])


def _shifted(passes: list[Tensor], given: Tensor, scale: float | None) -> list[Tensor]:
    """Return the passes moved by one amount, so that the pipeline makes ``given`` of them."""
    change = given - _guided(passes, scale)
    return [found + change for found in passes]


def _solver(scheduler: Any) -> str | None:
    """Return the solver of the forecasts' corrections, where the scheduler's step is known to be its step."""
    changed = any(scheduler.config.get(name) for name in ("clip_sample", "thresholding", "stochastic_sampling"))
    return "euler" if type(scheduler).__name__ in EULER and not changed else None


def _tensor(result: Any) -> Tensor:
    output: Tensor = result[0]
    return output


def _second_half(value: Any, rows: int) -> Any:
    """Return arguments for the second half of a batch of ``rows``: the positive pass."""
    if isinstance(value, Tensor):
        return value[rows // 2 :] if value.ndim and value.shape[0] == rows else value
    if isinstance(value, Mapping):
        return {name: _second_half(item, rows) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_second_half(item, rows) for item in value)
    return value
