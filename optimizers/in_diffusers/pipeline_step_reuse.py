"""Reuse Steps on the UNet or transformer of a pipeline.

The rule decides when the pipeline first calls a network in a step. In a skipped step the networks return their last
outputs, and the scheduler is given a forecast of the guided prediction: the number of passes and the kind of guidance
do not matter. As in ComfyUI forecasts are of the picture without noise.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..core.activity import Activity, Summary
from ..core.errors import UnsupportedModel
from ..core.not_copied import Args, Function, Kwargs
from ..core.technique import COMPILATION, STEP_REUSE, Policy
from ..step_reuse.budget import Outcome
from ..step_reuse.path import Blocks
from ..step_reuse.reuse_policy import StepReusePolicy
from ..step_reuse.reuse_settings import StepReuseSettings
from .components import CONTROLNET, DENOISER
from .host import Host, host_of
from .noise_levels import FLOW, KNOWN_STEPS, noise_levels, solver_of
from .patches import Patches
from .pipeline_run import PipelineCall
from .pipeline_technique import PipelineTechnique
from .reused_run import ReusedRun, frames_of, step_hook_of


@dataclass(frozen=True)
class ReuseSteps(StepReuseSettings):
    """Leave out steps that can be forecast from earlier ones: the settings of the node Reuse Steps."""


class PipelineStepReuse(PipelineTechnique):
    """Forecasts steps of one denoiser."""

    kind, title = StepReusePolicy.kind, StepReusePolicy.title
    policy: StepReusePolicy
    roles = (DENOISER,)

    def attach(self, host: Host, patches: Patches) -> None:
        """Check that there is a scheduler to ask.

        Raises `UnsupportedModel` for a model on its own, for networks that also predict a variance, and where diffusers
        reuses something already.
        """
        self._began = self._frames = self._thread = 0
        self._run: ReusedRun | None = None
        scheduler = getattr(host.asker, "scheduler", None)
        if scheduler is None:
            raise UnsupportedModel(
                "Reuse Steps needs the noise levels, and a model on its own has no scheduler.",
                "Give the whole pipeline to optimize.",
            )
        if "learned" in str(scheduler.config.get("variance_type", "")):
            raise UnsupportedModel(
                f"{host.component.class_name} predicts a variance too, which Reuse Steps does not forecast.",
                "Leave Reuse Steps out for this pipeline.",
            )
        if _has_cache(host):
            raise UnsupportedModel(
                f"{host.component.name} has a cache of diffusers already, which also skips work.",
                "Call disable_cache() first, or leave Reuse Steps out: each would measure the other's forecasts.",
            )
        self.policy = StepReusePolicy(self.settings, "the pipeline's scheduler was not asked for a step")
        self.policy.known_steps = KNOWN_STEPS

    def ended(self) -> None:
        super().ended()
        self._end_run()
        self._began = 0

    def call(self, host: Host, compute: Function, args: Args, kwargs: Kwargs) -> object:
        call, frames = host.call, kwargs.get("num_frames")
        self._frames = frames if isinstance(frames, int) else 0
        if call is None:
            self.policy.outcome.note(f"no argument of {host.component.class_name} is known here to be its latent")
        run = None if call is None else self.open(host, call)
        if call is None or run is None:
            return compute(*args, **kwargs)
        if run.rule.skips:
            answer = run.outputs.again(call)
            if answer is not None:
                return answer
            run.rule.compute(some=run.outputs.given)
        result = compute(*args, **kwargs)
        if not run.outputs.keep(call, result):
            self._step_aside(f"{host.component.class_name} has several outputs, and only a single one can be forecast")
        return result

    def open(self, host: Host, call: PipelineCall) -> ReusedRun | None:
        """Return the current run, with its decision about the evaluation of a call; None if there is none."""
        pipeline: Any = host.pipeline
        if pipeline is None:
            self.policy.outcome.note("the network is not called by a pipeline, so the begin of a run is unknown")
            return None
        if self._run is not None and self._thread != threading.get_ident():
            self.policy.outcome.note("another thread uses the model at the same time: all of its steps are computed")
            return None
        if torch.is_grad_enabled():
            if self._run is not None:
                self._step_aside("gradients are asked for")
            return None
        host.run.at(pipeline, call)
        if host.run.began != self._began:
            self._began = host.run.began
            self._begin_run(host, pipeline)
        elif self._run is not None and not self._run.open and host.run.number == self._run.index:
            self._step_aside("the pipeline takes several steps at one noise level")
        if self._run is not None:
            scale, guided = (
                getattr(pipeline, name, None) for name in ("guidance_scale", "do_classifier_free_guidance")
            )
            self._run.ask(isinstance(scale, (int, float)) and bool(guided))
        return self._run

    def before_step(self, scheduler: Any, arguments: dict[str, Any]) -> None:
        run = self._run
        if run is None or not run.open or run.schedule.timesteps is not scheduler.timesteps:
            return self._end_run()  # another network has taken over
        reason = run.before_step(scheduler, arguments)
        return None if reason is None else self._step_aside(reason)

    def after_step(self, scheduler: Any) -> None:
        if self._run is not None and self._run.index >= self._run.schedule.last:
            self._end_run()

    def _begin_run(self, host: Host, pipeline: Any) -> None:
        self._end_run()
        scheduler, refusal = pipeline.scheduler, _refusal(host, pipeline)
        levels = None if refusal else noise_levels(scheduler)
        if levels is None:
            unknown = f"the noise levels of {type(scheduler).__name__} are not known to Reuse Steps"
            self.policy.outcome = Outcome(notes=[refusal or unknown])
            return
        rule = self.policy.rule_for(
            levels.steps(host.run.first, host.run.last + 1),
            solver_of(scheduler),
            levels.kind == FLOW,
            split=lambda latent: frames_of(latent, host.component.part.config.get("out_channels"), self._frames),
        )
        if rule is not None:
            part = host.component.part
            compiled = host.find(COMPILATION) is not None or getattr(part, "_compiled_call_impl", None) is not None
            blocks = Blocks(part, compiled)
            self._thread = threading.get_ident()
            self._run = ReusedRun(rule, levels, host.run, step_hook_of(scheduler), blocks)
            self._run.hook.tell(self)

    def _step_aside(self, reason: str) -> None:
        self._end_run()
        self.policy.outcome.note(f"{reason}: Reuse Steps is off for the rest of the run")

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.rule.read()
            self._run.hook.leave(self)
            self._run.blocks.leave()
            self._run = None


def _refusal(host: Host, pipeline: Any) -> str | None:
    if _has_cache(host):
        return f"{host.component.name} has a cache of diffusers, so Reuse Steps does nothing"
    if hasattr(pipeline, "sag_masking"):
        return "self-attention guidance needs the network's attention in every step"
    config = pipeline.scheduler.config
    if config.get("clip_sample") or config.get("thresholding"):
        return "the scheduler clips predictions, so that the effect of an error is not known"
    return None


def _has_cache(host: Host) -> bool:
    return bool(getattr(host.component.part, "is_cache_enabled", False))


class ControlNetReusePolicy(Policy):
    """The report of a ControlNet; ``used`` in an activity are calls that were left out."""

    kind, title = STEP_REUSE, StepReusePolicy.title

    def clauses(self) -> tuple[str, ...]:
        return ("is skipped in steps that are forecast",)

    def summarize(self, activity: Activity) -> Summary:
        left_out, calls = activity.use_count, activity.use_count + activity.model_calls
        counts = {"calls": calls, "left_out": left_out}
        return Summary("active" if left_out else "inactive", f"{left_out} of {calls} calls skipped", counts)


class ControlNetReuse(PipelineTechnique):
    """Leaves out calls of one ControlNet."""

    kind, title = ControlNetReusePolicy.kind, ControlNetReusePolicy.title
    policy: ControlNetReusePolicy
    roles = (CONTROLNET,)

    def attach(self, host: Host, patches: Patches) -> None:
        """Raise `UnsupportedModel` for a ControlNet on its own."""
        if _denoiser(host.asker) is None:
            raise UnsupportedModel(
                "Reuse Steps on a ControlNet follows the pipeline's UNet or transformer, and there is none.",
                "Give the whole pipeline to optimize.",
            )
        self.policy = ControlNetReusePolicy()
        self._shapes: dict[tuple[torch.Size, ...], Any] = {}

    def call(self, host: Host, compute: Function, args: Args, kwargs: Kwargs) -> object:
        """Compute one call, or give zeros in the form of the last result."""
        call, run = host.call, None
        leader_host = host_of(_denoiser(host.pipeline))
        leader = None if leader_host is None else leader_host.find(self.kind)
        if call is not None and leader_host is not None and isinstance(leader, PipelineStepReuse):
            leader_host.begin_run()
            run = leader.open(leader_host, call)
        if call is None or run is None:
            return compute(*args, **kwargs)
        if run.rule.skips and call.shapes in self._shapes:
            self.run.use("left out")
            run.outputs.given = True
            empty, device = self._shapes[call.shapes], call.sample.device
            return tree_map_only(Tensor, lambda tensor: torch.zeros_like(tensor, device=device), empty)
        result = compute(*args, **kwargs)
        meta = tree_map_only(Tensor, lambda tensor: torch.empty_like(tensor, device="meta"), result)
        self._shapes[call.shapes] = meta
        return result


def _denoiser(pipeline: Any) -> Any:
    return getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
