"""The arguments of a call of a sampler's function: its noise levels, and its solver by the names of Reuse Steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.not_copied import Function, Kwargs, NotCopied
from ..models.samplers import SAMPLERS
from .webui_models import Denoiser

OWN_LOOPS = {one.webui or name: one.chooses_levels for name, one in SAMPLERS.items() if one.chooses_levels}
"""Functions that choose their noise levels themselves, with the sampler's title in the host."""

CHOOSES = "the sampler {name} chooses its noise levels itself"


@dataclass(frozen=True)
class WebUISolver:
    """One call of a sampler's function.

    Attributes:
        function: its name.
        given: its arguments by name.
        timesteps: whether its model is called with timesteps and gives noise, instead of noise levels and pictures.
    """

    function: str
    given: Mapping[str, Any]
    timesteps: bool

    @classmethod
    def of(cls, function: object, given: Mapping[str, Any]) -> WebUISolver:
        name = str(getattr(function, "__name__", type(function).__name__)).removeprefix("sample_")
        return cls(name, given, "timesteps" in given or name == "unipc")

    @property
    def name(self) -> str:
        """The solver, by ComfyUI's name for it; an unknown name where noise or other settings change its step."""
        given = self.given
        if self.function == "ddim":  # without noise it is Euler's step
            return "ddim with noise" if given.get("eta") else "euler"
        if given.get("s_churn") or given.get("solver_type") == "heun":
            return f"{self.function} with other settings"
        return self.function

    def values(self) -> list[float]:
        """Return the noise levels, the last included, or timesteps, from high to low; none where it chooses them."""
        sigmas, timesteps = self.given.get("sigmas"), self.given.get("timesteps")
        if self.function in OWN_LOOPS:
            return []
        if isinstance(sigmas, Tensor):
            return [float(sigma) for sigma in sigmas.tolist()]
        return [float(step) for step in reversed(timesteps.tolist())] if isinstance(timesteps, Tensor) else []


Choose = Callable[[int], "Sequence[int] | None"]
"""Which of so many noise levels are evaluated, by their numbers from 0; None for all."""


class Thinned(NotCopied):
    """A sampler's function that evaluates some of its schedule's levels. The host reads its signature as it was."""

    def __init__(self, inner: Function, choose: Choose) -> None:
        functools.update_wrapper(self, inner)
        self.inner, self._choose = inner, choose

    def __call__(self, model: Denoiser, x: Tensor, *args: Any, **given: Any) -> Any:
        solver = WebUISolver.of(self.inner, given)
        steps = len(solver.values()) - 1  # of the last level, or timestep, nothing is evaluated
        kept = self._choose(steps) if steps > 0 else None
        if kept is not None:
            name, places = "sigmas", [*kept, steps]
            if solver.timesteps:  # which go upwards
                name, places = "timesteps", [steps - place for place in reversed(places)]
            given = given | {name: given[name][places]}
        return self.inner(model, x, *args, **given)


class Units:
    """Inputs and outputs of the model that a sampler calls: noise levels in, pictures without noise out."""

    def sigma(self, value: float) -> float:
        """Return the noise level of a call."""
        return value

    def latent(self, x: Tensor, value: float) -> Tensor:
        """Return a latent with the picture at its own size, as new float32."""
        return x.float().clone()

    def denoised(self, x: Tensor, output: Tensor, value: float) -> Tensor:
        """Return the prediction of the picture without noise."""
        return output

    def output(self, x: Tensor, denoised: Tensor, value: float) -> Tensor:
        """Return the output of a model that predicts the picture ``denoised``."""
        return denoised


class Timesteps(Units):
    """The same with timesteps, latents of constant size, and noise as output."""

    def __init__(self, alphas: Tensor) -> None:
        self._alphas = alphas

    def sigma(self, value: float) -> float:
        alpha = self._alpha(value)
        return math.sqrt((1.0 - alpha) / alpha)

    def latent(self, x: Tensor, value: float) -> Tensor:
        return x.float() / math.sqrt(self._alpha(value))

    def denoised(self, x: Tensor, output: Tensor, value: float) -> Tensor:
        return self.latent(x, value).to(output.dtype) - output * self.sigma(value)

    def output(self, x: Tensor, denoised: Tensor, value: float) -> Tensor:
        return (self.latent(x, value).to(denoised.dtype) - denoised) / self.sigma(value)

    def _alpha(self, value: float) -> float:
        return float(self._alphas[int(value)])


class Position:
    """Where in the schedule an evaluation of the denoiser stands.

    Attributes:
        number: counts evaluations.
        value: noise level or timestep ``[batch]``.
        size: of the latents, ``[batch, channels, ...]``.
    """

    def __init__(self, denoiser: Denoiser) -> None:
        self._denoiser = denoiser
        self.number = 0
        self.value: Tensor | None = None
        self.size = torch.Size()
        self._options: Kwargs = {}
        self._read: float | None = None

    def moved_to(self, x: Tensor, value: Tensor, options: Kwargs) -> None:
        """Go to the next evaluation."""
        self.number += 1
        self.value, self.size, self._options, self._read = value, x.shape, options, None

    def now(self) -> float:
        """Return the noise level or timestep, which is read once from the device."""
        if self._read is None:
            self._read = 0.0 if self.value is None else float(self.value.flatten()[0])
        return self._read

    @property
    def step(self) -> int:
        """The host's number of the evaluation."""
        return int(self._denoiser.step)

    @property
    def joined(self) -> bool:
        """Whether an image has several prompts, joined by AND."""
        return any(len(image) > 1 for image in self._images())

    def prompts(self) -> tuple[Hashable, ...]:
        """Return which part of each prompt is drawn now, of prompts that change while they are."""
        found: list[int] = []
        for image in self._images():
            found += [len(image), *(self._part(composed.schedules) for composed in image)]
        negative = self._options.get("uncond")
        if isinstance(negative, list):
            found += map(self._part, negative)
        return tuple(found)

    def _images(self) -> Sequence[Sequence[Any]]:
        images: Sequence[Sequence[Any]] = getattr(self._options.get("cond"), "batch", ())
        return images

    def _part(self, schedules: Sequence[Any]) -> int:
        return next((number for number, one in enumerate(schedules) if self.step <= one.end_at_step), 0)
