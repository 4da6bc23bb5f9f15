"""Reuse Steps on the UNet or transformer of a pipeline.

The rule decides when the pipeline first calls a network in a step. In a skipped step the networks return their last
outputs, and the scheduler is given a forecast of the guided prediction: the number of passes and the kind of guidance
do not matter. As in ComfyUI forecasts are of the picture without noise.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from ....core.calls import Args, Function, Kwargs
from ....core.errors import UnsupportedModel
from ....core.technique import COMPILATION
from ...step_reuse.blocks import Blocks
from ...step_reuse.outcome import Outcome
from ...step_reuse.policy import StepReusePolicy
from ...step_reuse.rule import Action
from .components import CONTROLNET, DENOISER
from .host import Host, PipelineTechnique
from .network_calls import PipelineCall, Text, text_of
from .patches import Patches
from .position import PipelinePosition
from .prediction import FLOW, noise_levels
from .settings import ReuseSteps
from .solvers import solver_of
from .step_hook import step_hook_of
from .step_reuse_run import PipelineRun, frames_of


class PipelineStepReuse(PipelineTechnique):
    """Forecasts steps of one denoiser."""

    kind, title = StepReusePolicy.kind, StepReusePolicy.title
    policy: StepReusePolicy
    roles = (DENOISER, CONTROLNET)

    def __init__(self, settings: ReuseSteps) -> None:
        super().__init__(settings)
        self._position = PipelinePosition()
        self._timesteps: Tensor | None = None
        self._index, self._frames, self._thread = -1, 0, 0
        self._run: PipelineRun | None = None

    def attach(self, host: Host, patches: Patches) -> None:
        """Check that there is a scheduler to ask.

        Raises `UnsupportedModel` for a model on its own, for networks that also predict a variance, and where diffusers
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
                "Call disable_cache() first, or leave Reuse Steps out: each would measure the other's forecasts.",
            )
        self.policy = StepReusePolicy(self.settings, "the pipeline's scheduler was not asked for a step")

    def ended(self) -> None:
        super().ended()
        self._end_run()
        self._timesteps = None

    def call(self, host: Host, compute: Function, args: Args, kwargs: Kwargs) -> object:
        call, frames = PipelineCall.of(args, kwargs), kwargs.get("num_frames")
        self._frames = frames if isinstance(frames, int) else 0
        run = None if call is None else self.open(host, call.timestep, call.sample.shape, text_of(args, kwargs))
        if call is None or run is None:
            return compute(*args, **kwargs)
        if run.rule.action is Action.FORECAST:
            answer = run.calls.again(call)
            if answer is not None:
                return answer
            run.rule.compute(some=run.calls.given)
        result = compute(*args, **kwargs)
        if not run.calls.keep(call, result):
            self._step_aside(f"{host.component.class_name} gives more than one thing, and only one can be forecast")
        return result

    def open(self, host: Host, timestep: object, key: Hashable, text: Text) -> PipelineRun | None:
        """Return the current run, with its decision about this evaluation; None if there is none.

        ``key`` must be the same as in the last evaluation, ``text`` only if it ever was.
        """
        pipeline: Any = host.pipeline
        if pipeline is None:
            return None
        if self._run is not None and self._thread != threading.get_ident():
            self.policy.outcome.note("another thread uses the model at the same time: all of its steps are computed")
            return None
        if torch.is_grad_enabled():
            if self._run is not None:
                self._step_aside("gradients are asked for")
            return None
        self._position.moved_to(pipeline, timestep)
        timesteps, index = pipeline.scheduler.timesteps, self._position.place()
        closed = self._run if self._run is not None and not self._run.open else None
        if closed is not None and index == self._index and closed.levels.is_asked_twice(index):
            index += 1  # found by its timestep, which is there twice
        if self._timesteps is None or index < self._index:
            self._timesteps = timesteps
            self._begin_run(host, pipeline, index)
        elif closed is not None and index == self._index:
            self._step_aside("the pipeline takes several steps at one noise level")
        self._index = index
        if self._run is not None:
            self._run.ask(index, (host.component.name, key, text), _is_guided(pipeline))
        return self._run

    def before_step(self, scheduler: Any, arguments: dict[str, Any]) -> None:
        run = self._run
        if run is None or not run.open or self._timesteps is not scheduler.timesteps:
            return self._end_run()  # another network has taken over
        reason = run.before_step(scheduler, arguments)
        return None if reason is None else self._step_aside(reason)

    def after_step(self, scheduler: Any) -> None:
        if self._run is not None and self._index >= self._run.last:
            self._end_run()

    def _begin_run(self, host: Host, pipeline: Any, index: int) -> None:
        self._end_run()
        scheduler, refusal = pipeline.scheduler, _refusal(host, pipeline)
        levels = None if refusal else noise_levels(scheduler)
        if levels is None:
            unknown = f"the noise levels of {type(scheduler).__name__} are not known to Reuse Steps"
            self.policy.outcome = Outcome(notes=[refusal or unknown])
            return
        # image to image begins in the middle of the schedule, and a base model may leave the end to a refiner
        planned, count = getattr(pipeline, "num_timesteps", None), len(levels.asked)
        end = min(index + planned, count) if isinstance(planned, int) and planned > 0 else count
        rule = self.policy.rule_for(
            levels.steps(index, end),
            solver_of(scheduler),
            levels.kind == FLOW,
            split=lambda latent: frames_of(latent, host.component.part.config.get("out_channels"), self._frames),
        )
        if rule is not None:
            part = host.component.part
            compiled = host.find(COMPILATION) is not None or getattr(part, "_compiled_call_impl", None) is not None
            blocks = Blocks(part, compiled)
            self._thread = threading.get_ident()
            self._run = PipelineRun(rule, levels, index, end - 1, step_hook_of(scheduler), blocks)
            self._run.hook.tell(self)

    def _step_aside(self, reason: str) -> None:
        self._end_run()
        self.policy.outcome.note(f"{reason}: Reuse Steps steps aside")

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.rule.read()
            self._run.hook.leave(self)
            self._run.blocks.leave()
            self._run = None


def _refusal(host: Host, pipeline: Any) -> str | None:
    if _has_cache(host):
        return f"{host.component.name} has a cache of diffusers, and Reuse Steps steps aside"
    if hasattr(pipeline, "sag_masking"):
        return "self-attention guidance looks into the network in every step"
    config = pipeline.scheduler.config
    if config.get("clip_sample") or config.get("thresholding"):
        return "the scheduler clips predictions, so that the effect of an error is not known"
    return None


def _is_guided(pipeline: Any) -> bool:
    """Return whether there is a negative pass, with one scale of the guidance."""
    scale = getattr(pipeline, "guidance_scale", None)
    return isinstance(scale, (int, float)) and bool(getattr(pipeline, "do_classifier_free_guidance", False))


def _has_cache(host: Host) -> bool:
    return bool(getattr(host.component.part, "is_cache_enabled", False))
