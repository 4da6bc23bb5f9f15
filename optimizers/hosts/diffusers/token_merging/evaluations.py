"""Which prediction of a run a call of the denoiser belongs to, and its place among the calls of that one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .....core.calls import Args, Kwargs
from .....core.technique import COMPILATION
from ....token_merging.policy import TokenMergingPolicy
from ....token_merging.residual import COMPILED, GRADIENTS, UNTOLD, WINDOWS, Evaluation
from ..host import Host
from ..network_calls import text_of, version_of
from ..position import PipelinePosition


class PipelineEvaluations:
    """The predictions of one run: calls at one timestep are one, and told apart by their order.

    Timesteps stand for noise levels, as they fall with them. ``over`` is called when the run is over, whatever ended
    it: its text, which only the pipeline's call holds, is gone then.
    """

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over
        self._levels: list[float] = []
        self._steps: list[float] = []
        self._place, self._last, self._calls = -1, 0, 0
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
        if not host.again:
            self._calls = self._calls + 1 if place == self._place else 0
        self._place = place
        self._look_at(text_of(args, kwargs).tensor)
        tensors = [*args, *kwargs.values()]
        shapes = tuple(value.shape for value in tensors if isinstance(value, Tensor))
        given = frozenset(name for name, value in kwargs.items() if value is not None)
        sigma = self._steps[min(place, len(self._steps) - 1)]
        evaluation = Evaluation(self._levels, place, sigma, self._taking_part, last=place >= self._last)
        return evaluation, (self._calls, shapes, given)

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


def refusal(host: Host, policy: TokenMergingPolicy) -> str:
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
