"""A scheduler's noise levels and solver, and what a network's output says about the picture without noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..models.samplers import SAMPLERS

KNOWN_STEPS = ", ".join(
    dict.fromkeys(one.name for known in SAMPLERS.values() if known.update for one in known.schedulers)
)
"""The schedulers for runs of few steps. Those that serve several samplers must have a sampler's settings too."""

SMALLEST = 2.0**-24
"""Least part of the picture's energy in a noise level: schedules that begin at pure noise have 0 there."""

FLOW = "flow"

KINDS = {"epsilon": "epsilon", "v_prediction": "v_prediction", "sample": "sample", "original_sample": "sample"}
"""Predictions by the names that schedulers have for them."""

BETWEEN: dict[str, Callable[[Any, list[float], int], float]] = {
    "KDPM2DiscreteScheduler": lambda scheduler, _, index: float(scheduler.sigmas_interpol[index]),
    "KDPM2AncestralDiscreteScheduler": lambda scheduler, _, index: float(scheduler.sigmas_interpol[index - 1]),
    "DPMSolverSDEScheduler": lambda _, levels, index: math.sqrt(levels[index - 1] * levels[index]),
}
"""Schedulers that also ask the network between two of their levels, with the level of such a timestep."""


@dataclass(frozen=True)
class Prediction:
    """What a network predicts at one noise level, and the way to the picture without noise and back.

    ``kind``: ``epsilon``, ``v_prediction``, ``sample`` or ``flow``. ``sigma``: of a flow from 0 to 1, else noise for
    each unit of picture.
    """

    kind: str
    sigma: float

    @property
    def _signal(self) -> float:
        return float((1.0 + self.sigma**2) ** -0.5)

    def latent(self, sample: Tensor) -> Tensor:
        """Return the picture with its noise, the picture at its own size, from the network's input: a new tensor."""
        return sample.float().clone() if self.kind == FLOW else sample.float() / self._signal

    def denoised(self, latent: Tensor, output: Tensor) -> Tensor:
        """Return the picture without noise that an output stands for."""
        made = output.float()
        if self.kind in ("epsilon", FLOW):
            return latent - self.sigma * made
        if self.kind == "sample":
            return made.clone()
        return latent * self._signal**2 - self.sigma * self._signal * made

    def output(self, latent: Tensor, denoised: Tensor) -> Tensor:
        """Return the output that stands for a picture without noise."""
        if self.kind in ("epsilon", FLOW):
            return (latent - denoised) / self.sigma
        if self.kind == "sample":
            return denoised
        return (latent * self._signal**2 - denoised) / (self.sigma * self._signal)


@dataclass(frozen=True)
class NoiseLevels:
    """The noise levels of a scheduler's timesteps.

    ``asked``: at which the network is asked; ``levels``: of the solver's latent before each, and after the last.
    """

    kind: str
    asked: tuple[float, ...]
    levels: tuple[float, ...]

    def steps(self, start: int, end: int) -> list[float]:
        """Return the levels of some timesteps and the one after them. One that is asked twice is there once."""
        return sorted(set(self.levels[start : end + 1]), reverse=True)

    def at(self, index: int) -> Prediction:
        """Return the kind and the level of the prediction at a timestep."""
        return Prediction(self.kind, self.asked[index])


def noise_levels(scheduler: Any) -> NoiseLevels | None:
    """Return the noise levels of a scheduler; None where those, or the predictions, are not known here."""
    kind, count = _kind(scheduler), len(scheduler.timesteps)
    own = getattr(scheduler, "sigmas", None)
    if kind is None:
        return None
    if isinstance(own, Tensor) and len(own) > count:
        levels = [float(value) for value in own[: count + 1].tolist()]
    elif kind == FLOW:
        return None
    else:
        levels = [*_from_table(scheduler), 0.0]
    falling = all(here >= after for here, after in zip(levels, levels[1:], strict=False))
    asked = [_asked(scheduler, levels, index) for index in range(count)]
    if not falling or not asked or min(asked) <= 0.0:
        return None
    return NoiseLevels(kind, tuple(asked), tuple(levels))


def _kind(scheduler: Any) -> str | None:
    """Return the network's kind of prediction; None where the way to the picture without noise is another one."""
    asked = str(scheduler.config.get("prediction_type", "epsilon"))
    if "FlowMatch" in type(scheduler).__name__ or asked == "flow_prediction":
        return FLOW
    known = isinstance(getattr(scheduler, "alphas_cumprod", None), Tensor)
    return KINDS.get(asked) if known else None


def _asked(scheduler: Any, levels: list[float], index: int) -> float:
    """Return the level at which the network is asked: every second time some solvers ask between two levels."""
    between = index % 2 and BETWEEN.get(type(scheduler).__name__)
    return between(scheduler, levels, index) if between else levels[index]


def _from_table(scheduler: Any) -> list[float]:
    kept = scheduler.alphas_cumprod.double().cpu().clamp(min=SMALLEST)
    table = ((1 - kept) / kept).sqrt().log()
    places = scheduler.timesteps.double().cpu().clamp(0, len(table) - 1)
    low = places.floor().long()
    high = (low + 1).clamp(max=len(table) - 1)
    found: list[float] = table[low].lerp(table[high], places - low).exp().tolist()
    return found


CHANGES = ("clip_sample", "thresholding", "stochastic_sampling", "invert_sigmas")
"""Settings that make another step of a solver's."""

NOISE = ("eta", "s_churn", "per_token_timesteps", "use_clipped_model_output")
"""Arguments of ``step`` that make another step of it."""


def solver_of(scheduler: Any) -> str | None:
    """Return the solver of a scheduler; None where it is none that is known."""
    config: Mapping[str, Any] = scheduler.config
    kind = type(scheduler).__name__
    known = [(name, one) for name, sampler in SAMPLERS.items() for one in sampler.schedulers if one.name == kind]
    same = (name for name, one in known if all(config.get(key) == value for key, value in one.settings.items()))
    found = next(same, None)
    if found is None or any(config.get(name) for name in CHANGES) or not _steps_exactly(scheduler, config):
        return None
    return found


def is_changed(arguments: Mapping[str, Any]) -> bool:
    """Return whether a step is asked for with arguments that make it another one."""
    given = (arguments.get(name) for name in NOISE)
    return any(isinstance(value, Tensor) or bool(value) for value in given)


def _steps_exactly(scheduler: Any, config: Mapping[str, Any]) -> bool:
    """Return whether a scheduler goes from each noise level exactly to the next, and the last is 0."""
    name = type(scheduler).__name__
    if "DDIM" in name:  # steps by a fixed number of timesteps, which is not always how far the next one is
        step = config["num_train_timesteps"] // scheduler.num_inference_steps
        apart = (scheduler.timesteps[:-1] - scheduler.timesteps[1:]).tolist()
        return all(distance == step for distance in apart)
    if name == "DPMSolverMultistepScheduler":
        return not config.get("use_flow_sigmas") and config.get("final_sigmas_type") == "zero"
    return True
