"""What both ways of merging tokens share in this host: whether a call is reduced, and the step that it belongs to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .....core.calls import Args, Kwargs
from .....core.technique import COMPILATION
from ....token_merging import TokenMergingSettings
from ....token_merging.policy import TokenMergingPolicy
from ....token_merging.residual import COMPILED, GRADIENTS, UNTOLD, WINDOWS, ResidualCall, SamplingStep
from ..components import DENOISER
from ..host import Host, PipelineTechnique
from .blocks import ModuleBlock


class PipelineTokenMerging(PipelineTechnique):
    """Apply ToMe on one denoiser; ``active`` and ``residual`` are of the call that runs."""

    kind, title = TokenMergingPolicy.kind, TokenMergingPolicy.title
    roles = (DENOISER,)
    policy: TokenMergingPolicy[ModuleBlock]

    def __init__(self, settings: TokenMergingSettings) -> None:
        super().__init__(settings)
        self.active = False
        self.residual: ResidualCall | None = None

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        position, host.run.over = host.run.position, self.policy.residuals.drop
        position.moved_to(host.pipeline, None if host.call is None else host.call.timestep)
        self.active = self.policy.is_active(position, self.activity)
        self.residual = self._residual_call(host, args, kwargs) if self.policy.keeps else None

    def end_call(self) -> None:
        super().end_call()
        self.policy.residuals.settle()

    def _residual_call(self, host: Host, args: Args, kwargs: Kwargs) -> ResidualCall | None:
        reason = _refusal(host, self.policy)
        evaluation = None if reason else _evaluation(host)
        if not self.active:
            return None
        shapes = tuple(value.shape for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        passes = (host.run.calls, shapes, frozenset(name for name, value in kwargs.items() if value is not None))
        return self.policy.residual_call(evaluation, passes, host.run.position, reason, host.again)


def _evaluation(host: Host) -> SamplingStep | None:
    """Return the prediction that the host's call belongs to; timesteps stand for noise levels, as they fall with them.

    None if it is not known.
    """
    run, steps = host.run, host.run.position.schedule()
    if not steps or host.call is None:
        return None
    run.at(host.pipeline, host.call)
    if run.elsewhere:
        return None
    levels = [*sorted(set(steps[run.first : run.last + 1]), reverse=True), 0.0]
    sigma = steps[min(run.number, len(steps) - 1)]
    return SamplingStep(levels, run.number, sigma, run.taking_part, last=run.number >= run.last)


def _refusal(host: Host, policy: TokenMergingPolicy[ModuleBlock]) -> str:
    """Return why a difference cannot be kept for calls of a denoiser; "" if it can."""
    technique: Any = host.find(COMPILATION)
    if getattr(host.pipeline, "scheduler", None) is None:
        return UNTOLD
    if getattr(host.component.part, "_compiled_call_impl", None) is not None:
        return COMPILED
    if hasattr(host.pipeline, "get_views"):  # of Panorama and DemoFusion, which moves them from step to step
        return WINDOWS
    if torch.is_grad_enabled():
        return GRADIENTS
    if technique is None:
        return ""
    return policy.refused_by("repeated_blocks" if technique.settings.regional else "whole_model")
