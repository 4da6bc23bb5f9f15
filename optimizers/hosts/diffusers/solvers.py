"""Which solver a scheduler's step is, by the names that Reuse Steps has for them, which are ComfyUI's.

Where the update is not known to be exactly that solver's, there is no name: nothing is taken back then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

CHANGES = ("clip_sample", "thresholding", "stochastic_sampling", "invert_sigmas")
"""Settings that make another step of a solver's."""

NOISE = ("eta", "s_churn", "per_token_timesteps", "use_clipped_model_output")
"""Arguments of ``step`` that make another step of it."""


def solver_of(scheduler: Any) -> str | None:
    """Return the solver of a scheduler; None where it is none that is known."""
    config: Mapping[str, Any] = scheduler.config
    found = _SOLVERS.get(type(scheduler).__name__)
    if found is None or any(config.get(name) for name in CHANGES):
        return None
    return found(scheduler, config)


def is_changed(arguments: Mapping[str, Any]) -> bool:
    """Return whether a step is asked for with arguments that make it another one."""
    given = (arguments.get(name) for name in NOISE)
    return any(isinstance(value, Tensor) or bool(value) for value in given)


def _ddim(scheduler: Any, config: Mapping[str, Any]) -> str | None:
    """DDIM steps by a fixed number of timesteps, which is not always how far the next one is."""
    step = config["num_train_timesteps"] // scheduler.num_inference_steps
    apart = (scheduler.timesteps[:-1] - scheduler.timesteps[1:]).tolist()
    return "euler" if all(distance == step for distance in apart) else None


def _dpm_multistep(scheduler: Any, config: Mapping[str, Any]) -> str | None:
    if config.get("use_flow_sigmas") or config.get("final_sigmas_type") != "zero":
        return None
    algorithm, order = config["algorithm_type"], config["solver_order"]
    if order == 1:
        return "euler" if algorithm in ("dpmsolver", "dpmsolver++") else None
    if order != 2:
        return None
    if algorithm == "sde-dpmsolver++" and config["solver_type"] == "midpoint":
        return "dpmpp_2m_sde"
    if algorithm == "dpmsolver++":
        return {"midpoint": "dpmpp_2m", "heun": "res_multistep"}.get(config["solver_type"])
    return None


_SOLVERS: dict[str, Callable[[Any, Mapping[str, Any]], str | None]] = {
    "EulerDiscreteScheduler": lambda *_: "euler",
    "FlowMatchEulerDiscreteScheduler": lambda *_: "euler",
    "DDIMScheduler": _ddim,
    "DDIMParallelScheduler": _ddim,
    "CogVideoXDDIMScheduler": _ddim,
    "DPMSolverMultistepScheduler": _dpm_multistep,
    "EulerAncestralDiscreteScheduler": lambda *_: "euler_ancestral",
    "HeunDiscreteScheduler": lambda *_: "heun",
    "FlowMatchHeunDiscreteScheduler": lambda *_: "heun",
    "LMSDiscreteScheduler": lambda *_: "lms",
    "KDPM2DiscreteScheduler": lambda *_: "dpm_2",
    "KDPM2AncestralDiscreteScheduler": lambda *_: "dpm_2_ancestral",
    "DDPMScheduler": lambda *_: "ddpm",
    "LCMScheduler": lambda *_: "lcm",
}
