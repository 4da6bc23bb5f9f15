"""A technique in this host: for one sampling run, on one network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import technique as core
from ..core.activity import Activity, Summary
from ..core.shadow import Shadows
from .webui_models import Processing, WebUIModel
from .webui_samplers import Position, Timesteps, Units, WebUISolver

Compute = Callable[..., Tensor]
"""Computes a guided prediction, or the passes of one call."""


@dataclass(frozen=True)
class WebUISampling:
    """One run of a sampler with one network; once a refiner has taken over, another one. ``device``: of the latents."""

    p: Processing
    model: WebUIModel
    solver: WebUISolver
    position: Position
    device: torch.device

    @property
    def units(self) -> Units:
        """In which the denoiser is asked."""
        alphas = getattr(self.p.sd_model, "alphas_cumprod", None) if self.solver.timesteps else None
        return Timesteps(alphas.float().cpu()) if isinstance(alphas, Tensor) else Units()


@dataclass(frozen=True)
class TechniqueReport:
    """The report of one technique about a sampling run."""

    title: str
    summary: Summary

    @property
    def text(self) -> str:
        """The headline, and the first reason where the technique did nothing."""
        why = self.summary.details[:1] if self.summary.state == "inactive" else ()
        return ": ".join([self.summary.headline, *why])


class WebUITechnique(core.Technique):
    """One optimization of one network while one picture is sampled: made for the run, and dropped with it.

    `CannotHelp` where it is made: it is left out.
    """

    def __init__(self, policy: core.Policy) -> None:
        super().__init__(policy)
        self.activity = Activity()

    def attach(self, shadows: Shadows) -> None:  # noqa: B027
        """Put hooks on the network."""

    def before(self, x: Tensor) -> None:
        """Get ready for one call of the network for passes with the latents ``x`` ``[rows, channels, ...]``."""
        self.activity.model_calls += 1

    def guided(self, compute: Compute, x: Tensor) -> Tensor:
        """Return the guided prediction for the latents ``x``, which ``compute()`` gives."""
        return compute()

    def passes(self, compute: Compute, x: Tensor, /, *args: object, **options: object) -> Tensor:
        """Return the passes of one call, which ``compute(x, *args, **options)`` gives."""
        return compute(x, *args, **options)

    def moved_to(self, model: WebUIModel) -> bool:
        """Go on with another network; False where another technique must be made for it."""
        return False

    def said(self) -> TechniqueReport:
        return TechniqueReport(self.title, self.policy.summarize(self.activity))
