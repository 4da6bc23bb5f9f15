"""Reuse Steps on the UNet or transformer of a pipeline.

Whether a step is left out is decided when the pipeline first asks a network in it: a ControlNet, or the denoiser. In
such a step the networks give what they gave before. What the scheduler is given is the forecast: of the prediction that
the pipeline has made of all passes, seen in the steps before. So it does not matter how many passes there are, in how
many calls, and how guidance joins them. As in ComfyUI forecasts are made of the picture without noise.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ....core.activity import Activity, Summary
from ....core.errors import UnsupportedModel
from ....core.technique import COMPILATION
from ...step_reuse.guided import GuidedRun
from ...step_reuse.outcome import Outcome
from ...step_reuse.policy import StepReusePolicy, too_few
from ...step_reuse.run import Decision
from .components import CONTROLNET, DENOISER
from .host import PipelineTechnique
from .passes import Answers, Call, Text, latent_of, positive_half, text_of, version_of
from .prediction import NoiseLevels, Prediction, noise_levels
from .schedule import SchedulePosition
from .scheduler_steps import Steps, steps_of
from .solvers import is_changed, solver_of
from .unet import is_unet

if TYPE_CHECKING:
    from ....core.calls import Args, Function, Kwargs
    from .host import Host
    from .patches import Patches
    from .settings import ReuseSteps


class StepReuse(StepReusePolicy, PipelineTechnique):
    """Forecasts steps of one denoiser.

    Args:
        settings: what was asked for.
    """

    roles = (DENOISER, CONTROLNET)

    def __init__(self, settings: ReuseSteps) -> None:
        PipelineTechnique.__init__(self, settings)
        StepReusePolicy.__init__(self, settings)
        self._position = SchedulePosition()
        self._made: weakref.ref[Tensor] | None = None
        self._index = -1
        self._run: GuidedRun | None = None
        self._levels: NoiseLevels | None = None
        self._left: tuple[Tensor, int | None, Tensor] | None = None
        self._open, self._generation, self._last, self._answers = False, 0, -1, Answers()

    def attach(self, host: Host, patches: Patches) -> None:
        """Check that there is a scheduler to ask.

        Raises:
            UnsupportedModel: for a model on its own, for networks that also predict a variance, and where diffusers
                reuses something already.
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
        if _has_cache(host):
            raise UnsupportedModel(
                f"{host.component.name} has a cache of diffusers already, which also leaves out work.",
                "Call disable_cache() first, or leave Reuse Steps out: each would measure what the other has made up.",
            )
        patches.on_undo(self._end_run)

    def summarize(self, activity: Activity) -> Summary:
        """Return what was reused, or that nobody asked the scheduler."""
        if not self.outcome.evaluations and not self.outcome.notes:
            return Summary("inactive", "nothing was reused", {}, ("the pipeline's scheduler was not asked for a step",))
        return super().summarize(activity)

    def call(self, host: Host, compute: Function, args: Args, kwargs: Kwargs) -> object:
        """Compute one call of the network, or give what it gave before."""
        call = Call.of(args, kwargs)
        run = None if call is None else self.open(host, call.timestep, call.sample.shape, text_of(args, kwargs))
        if call is None or run is None:
            return compute(*args, **kwargs)
        if run.decision is Decision.FORECAST:
            answer = self._answers.again(call)
            if answer is not None:
                return answer
        try:
            if run.decision is Decision.GUIDANCE:
                return self._with_half(run, compute, args, kwargs, call)
            result = compute(*args, **kwargs)
        except BaseException:
            self._end_run()
            raise
        if not self._answers.keep(call, result):
            self._step_aside(f"{host.component.class_name} gives more than one thing, and only one can be forecast")
        return result

    def _with_half(self, run: GuidedRun, compute: Function, args: Args, kwargs: Kwargs, call: Call) -> object:
        """Compute the positive pass; the negative one is what it differed by before."""
        rows = call.sample.shape[0]
        half: Any = compute(*positive_half(args, rows), **positive_half(kwargs, rows))
        latent = self._at.latent(latent_of(call.sample, half[0].shape[1])[: rows // 2])
        negative = run.negative_from(self._at.denoised(latent, half[0]))
        return self._answers.joined(call, self._at.output(latent, negative), half)

    # One evaluation: from the first call of a network to the scheduler's step.

    def open(self, host: Host, timestep: object, key: Hashable, text: Text) -> GuidedRun | None:
        """Return the state of the run that goes on, with its decision about this evaluation; None if there is none.

        Args:
            host: of the network that is called.
            timestep: that it is given.
            key: what must be the same as in the last evaluation.
            text: the same, if it ever was.
        """
        pipeline: Any = host.pipeline
        if pipeline is None:
            return None
        if torch.is_grad_enabled():
            if self._run is not None:
                self._step_aside("gradients are asked for")
            return None
        self._position.moved_to(pipeline, timestep)
        timesteps, index = pipeline.scheduler.timesteps, self._position.place()
        if self._levels is not None and not self._open and index == self._index and self._levels.is_asked_twice(index):
            index += 1  # found by its timestep, which is there twice
        if self._made is None or self._made() is not timesteps or index < self._index:
            self._begin_run(host, pipeline, index)
        elif self._run is not None and not self._open and index == self._index:
            self._step_aside("the pipeline takes several steps at one noise level")
        self._index = index
        run = self._run
        if run is None or self._levels is None:
            return None
        changed = self._answers.is_new((host.component.name, key, text))
        if not self._open or (changed and not self._answers.given):
            self._generation += changed
            self._open, self._at = True, self._levels.at(index)
            scale = _guidance(pipeline)
            self._answers.guided = scale is not None
            scale = scale if self._answers.in_pairs else None
            run.begin(run.place_of(self._at.sigma), timesteps.new_empty(0), self._generation, scale)
        elif changed:
            self._generation += 1
        return run

    def given(self) -> None:
        """Take note that a ControlNet was left out in this evaluation."""
        self._answers.given = True

    def before_step(self, scheduler: Any, arguments: dict[str, Any]) -> None:
        """Take note of what the pipeline gives to the scheduler, or put the forecast in its place."""
        if not self._open or self._made is None or self._made() is not scheduler.timesteps:
            return self._end_run()  # another network has taken over
        self._open = False
        run, output, sample = self._run, arguments.get("model_output"), arguments.get("sample")
        if run is None:
            return None
        if not isinstance(output, Tensor) or not isinstance(sample, Tensor) or output.shape != sample.shape:
            return self._step_aside("the scheduler is given something else than one prediction for one latent")
        if is_changed(arguments):
            run.solver_unknown()
        latent = self._latent_of(scheduler, sample)
        moved, self._left = self._moved(scheduler, sample), None
        if run.decision is Decision.FORECAST:
            guided = run.guess(latent)
        else:
            guided = self._at.denoised(latent, output)
            if run.decision is Decision.COMPUTE:
                run.compare(guided, *self._answers.passes(self._at, latent))
        run.beside = self._answers.bytes
        given = run.finish(guided, latent, moved)
        if run.decision is Decision.FORECAST or given is not guided:
            arguments["model_output"] = self._at.output(latent, given).to(output.dtype)
        self._answers.end()
        return None

    def after_step(self, scheduler: Any, latent: Tensor) -> None:
        """Remember what the step has led to."""
        if self._index >= self._last:
            self._end_run()
        elif self._run is not None and self._run.takes_back:
            self._left = (latent, version_of(latent), latent.clone())

    def _latent_of(self, scheduler: Any, sample: Tensor) -> Tensor:
        """Return a latent of the scheduler with the picture at its own size."""
        scaled = getattr(scheduler, "scale_model_input", None)
        wide = sample.float()
        return self._at.latent(wide if scaled is None else scaled(wide, scheduler.timesteps[self._index]))

    def _moved(self, scheduler: Any, sample: Tensor) -> Tensor | None:
        """Return what a callback or the pipeline did to the latent since the last step; None if nothing."""
        if self._left is None:
            return None
        left, version, kept = self._left
        unchanged = left is sample and version is not None and version == version_of(sample)
        if unchanged or kept.shape != sample.shape:
            return None
        return self._latent_of(scheduler, sample.float() - kept.float())

    # One run.

    def _begin_run(self, host: Host, pipeline: Any, index: int) -> None:
        self._end_run()
        scheduler = pipeline.scheduler
        self._made = weakref.ref(scheduler.timesteps)
        self.outcome = outcome = Outcome()
        if _has_cache(host):
            return outcome.note(f"{host.component.name} has a cache of diffusers, and Reuse Steps steps aside")
        if hasattr(pipeline, "sag_masking"):
            return outcome.note("self-attention guidance looks into the network in every step")
        if scheduler.config.get("clip_sample") or scheduler.config.get("thresholding"):
            return outcome.note("the scheduler clips predictions, so that the effect of an error is not known")
        levels = noise_levels(scheduler)
        if levels is None:
            return outcome.note(f"the noise levels of {type(scheduler).__name__} are not known to Reuse Steps")
        # image to image begins in the middle of the schedule, and a base model may leave the end to a refiner
        planned, count = getattr(pipeline, "num_timesteps", None), len(levels.asked)
        end = min(index + planned, count) if isinstance(planned, int) and planned > 0 else count
        part = levels.steps(index, end)
        settings = self.settings
        if settings.use_guidance and (host.find(COMPILATION) is not None or _is_compiled(host.component.part)):
            settings = replace(settings, use_guidance=False)
            outcome.note("the negative pass is always computed: without it, Compile would need one more graph")
        run = GuidedRun(settings, part, outcome, solver_of(scheduler), is_unet(host.component.part))
        if run.too_short:
            outcome.notes[:] = [too_few(len(part) - 1)]
            return None
        self._levels, self._last, self._run = levels, end - 1, run
        self._steps = steps_of(scheduler)
        self._steps.tell(self)
        return None

    def _step_aside(self, reason: str) -> None:
        self._end_run()
        self.outcome.note(f"{reason}: Reuse Steps steps aside")

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.close()
            self._steps.leave(self)
        self._run, self._open, self._left, self._levels = None, False, None, None
        self._answers, self._generation, self._last = Answers(), 0, -1

    _steps: Steps  # while there is a run
    _at: Prediction  # of the evaluation that is open


def _guidance(pipeline: Any) -> float | None:
    """Return the scale of the guidance, where there is one for all passes."""
    scale = getattr(pipeline, "guidance_scale", None)
    if not isinstance(scale, (int, float)) or not getattr(pipeline, "do_classifier_free_guidance", False):
        return None
    return float(scale)


def _has_cache(host: Host) -> bool:
    return bool(getattr(host.component.part, "is_cache_enabled", False))


def _is_compiled(part: Any) -> bool:
    return getattr(part, "_compiled_call_impl", None) is not None
