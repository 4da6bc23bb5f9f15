"""What both ways of merging tokens share in this host: the prediction that a call belongs to."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .....core.calls import Args, Kwargs
from .....core.technique import COMPILATION
from ....token_merging import TokenMergingSettings
from ....token_merging.policy import TokenMergingPolicy
from ....token_merging.residual import COMPILED, GRADIENTS, UNTOLD, WINDOWS, Evaluation, ResidualCall
from ..components import DENOISER
from ..host import Host, PipelineTechnique
from ..network_calls import text_of, version_of
from ..position import PipelinePosition
from ..unet import ModuleBlock


class PipelineEvaluations:
    """The predictions of one run: calls at one timestep are one, and told apart by their order.

    Timesteps stand for noise levels, as they fall with them. ``over`` is called when the run is over, whatever ended
    it: its text, which only the pipeline's call holds, is gone then.
    """

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over
        self._levels: list[float] = []
        self._steps: list[float] = []
        self._place, self._last, self._calls, self._most = -1, 0, 0, 0
        self._timestep: object = None
        self._elsewhere = False
        self._given: list[tuple[weakref.ref[Tensor] | None, int | None, bool]] = []
        self._taking_part = 0

    def call(
        self, host: Host, position: PipelinePosition, args: Args, kwargs: Kwargs
    ) -> tuple[Evaluation | None, tuple[object, ...]]:
        """Return the prediction of the next call of the denoiser, None if unknown, and what tells the call apart."""
        self._steps, place = position.schedule(), position.place()
        if not self._steps:
            return None, ()
        if place < self._place or not self._levels:
            self._begin(host.pipeline, place)
        if not host.again and self._goes_on_elsewhere(position, place):
            return None, ()
        if not host.again:
            self._calls = self._calls + 1 if place == self._place else 0
        self._place, self._most = place, max(self._most, self._calls)
        self._look_at(text_of(args, kwargs).tensor)
        tensors = [*args, *kwargs.values()]
        shapes = tuple(value.shape for value in tensors if isinstance(value, Tensor))
        given = frozenset(name for name, value in kwargs.items() if value is not None)
        sigma = self._steps[min(place, len(self._steps) - 1)]
        evaluation = Evaluation(self._levels, place, sigma, self._taking_part, last=place >= self._last)
        return evaluation, (self._calls, shapes, given)

    def _goes_on_elsewhere(self, position: PipelinePosition, place: int) -> bool:
        """Return whether the steps are those of another pipeline, with a scheduler of its own: ours stands still.

        Asked of more calls at one place than any place had before, as looking at timesteps may wait for the device.
        """
        before, self._timestep = self._timestep, position.timestep
        if place != self._place:
            self._elsewhere = False
        elif self._calls >= self._most:
            self._elsewhere = self._elsewhere or not position.is_at(before)
        return self._elsewhere

    def _begin(self, pipeline: Any, place: int) -> None:
        # Image to image begins in the middle of the schedule, and a base model may leave the end to a refiner.
        planned = getattr(pipeline, "num_timesteps", None)
        steps = self._steps[place:]
        steps = steps[: planned if isinstance(planned, int) and planned > 0 else None]
        self._last = place + len(steps) - 1
        self._levels = [*sorted(set(steps), reverse=True), 0.0]
        self._place, self._taking_part = -1, self._taking_part + 1

    def _look_at(self, text: object) -> None:
        """Notice other prompts. Some pipelines make tensors anew in each step, which is no sign of a change."""
        if not isinstance(text, Tensor):
            return
        if self._calls == len(self._given):
            self._given.append((None, None, False))
        before, version, was_steady = self._given[self._calls]
        steady = before is not None and before() is text and version == version_of(text)
        if steady and not was_steady:
            before = weakref.ref(text, lambda _: self._over())
        elif not steady:
            self._taking_part += was_steady
            before = weakref.ref(text)
        self._given[self._calls] = (before, version_of(text), steady)


class PipelineTokenMerging(PipelineTechnique):
    """Apply ToMe on one denoiser; ``active`` and ``residual`` are of the call that runs."""

    kind, title = TokenMergingPolicy.kind, TokenMergingPolicy.title
    roles = (DENOISER,)
    policy: TokenMergingPolicy[ModuleBlock]

    def __init__(self, settings: TokenMergingSettings) -> None:
        super().__init__(settings)
        self.active = False
        self.residual: ResidualCall | None = None
        self.position = PipelinePosition()

    def began(self) -> None:
        super().began()
        self._evaluations = PipelineEvaluations(self.policy.residuals.drop)

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        timestep = kwargs.get("timestep", args[1] if len(args) > 1 else None)
        self.position.moved_to(host.pipeline, timestep)
        self.active = self.policy.is_active(self.position, self.activity)
        self.residual = self._residual_call(host, args, kwargs) if self.policy.keeps else None

    def end_call(self) -> None:
        super().end_call()
        self.policy.residuals.settle()

    def _residual_call(self, host: Host, args: Args, kwargs: Kwargs) -> ResidualCall | None:
        reason = _refusal(host, self.policy)
        unknown: tuple[None, tuple[object, ...]] = (None, ())
        evaluation, passes = unknown if reason else self._evaluations.call(host, self.position, args, kwargs)
        if not self.active:
            return None
        return self.policy.residual_call(evaluation, passes, self.position, reason, host.again)


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
