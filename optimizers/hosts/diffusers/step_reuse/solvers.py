"""Which solver a scheduler's step is, by the names that Reuse Steps has for them, which are ComfyUI's.

Where the update is not known to be exactly that solver's, there is no name: nothing is taken back then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ....samplers import SAMPLERS, Scheduler

CHANGES = ("clip_sample", "thresholding", "stochastic_sampling", "invert_sigmas")
"""Settings that make another step of a solver's."""

NOISE = ("eta", "s_churn", "per_token_timesteps", "use_clipped_model_output")
"""Arguments of ``step`` that make another step of it."""


def solver_of(scheduler: Any) -> str | None:
    """Return the solver of a scheduler; None where it is none that is known."""
    config: Mapping[str, Any] = scheduler.config
    found = next((name for name, sampler in SAMPLERS.items() if _is_among(sampler.schedulers, scheduler, config)), None)
    if found is None or any(config.get(name) for name in CHANGES) or not _steps_exactly(scheduler, config):
        return None
    return found


def _is_among(known: Sequence[Scheduler], scheduler: Any, config: Mapping[str, Any]) -> bool:
    same = [one for one in known if one.name == type(scheduler).__name__]
    return any(all(config.get(name) == value for name, value in one.settings.items()) for one in same)


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
