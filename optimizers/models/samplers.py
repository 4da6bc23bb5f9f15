"""Samplers as data: one record for each that hosts, Reuse Steps or the search know, by ComfyUI's name.

``in_diffusers/noise_levels.py`` says when a scheduler's step is exactly that of its sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Place:
    """Where in the schedule an evaluation stands.

    ``position`` is the number of the step, fractional between two; ``ahead`` the next noise level, 0 at the end.
    """

    position: float
    sigma: float
    ahead: float

    @classmethod
    def among(cls, levels: Sequence[float], sigma: float) -> Place:
        for number in range(len(levels) - 1):
            here, after = levels[number], levels[number + 1]
            if sigma > here or number == len(levels) - 2 or sigma > after + 1e-6 * here:
                inside = min(max((here - sigma) / (here - after), 0.0), 1.0) if here > after else 0.0
                return cls(float(number) if inside < 1e-4 else number + inside, sigma, after)
        return cls(0.0, sigma, 0.0)


@dataclass(frozen=True)
class Update:
    """One step of a solver: next latent = keep * latent + now * prediction + before * the last prediction."""

    keep: float
    now: float
    before: float = 0.0


Solver = Callable[[Place, Place | None], Update]
"""Returns the update of a step, given its place and that of the step before (None in the first)."""


def euler(place: Place, _: Place | None) -> Update:
    """Return Euler's step, which is also that of DDIM without noise."""
    keep = place.ahead / place.sigma
    return Update(keep, 1.0 - keep)


def dpmpp_2m(place: Place, previous: Place | None) -> Update:
    """Return the step of DPM-Solver++(2M), https://arxiv.org/abs/2211.01095, in the variables of denoised pictures."""
    keep = place.ahead / place.sigma
    if previous is None or place.ahead == 0:
        return Update(keep, 1.0 - keep)
    ahead, behind = math.log(place.sigma / place.ahead), math.log(previous.sigma / place.sigma)
    extra = ahead / (2 * behind)
    return Update(keep, (1.0 - keep) * (1.0 + extra), -(1.0 - keep) * extra)


def res_multistep(place: Place, previous: Place | None) -> Update:
    """Return the step of the Refined Exponential Solver, multistep, https://arxiv.org/abs/2308.02157."""
    keep = place.ahead / place.sigma
    if previous is None or place.ahead == 0:
        return Update(keep, 1.0 - keep)
    ahead, behind = math.log(place.sigma / place.ahead), math.log(previous.sigma / place.sigma)
    extra = (ahead - 1.0 + keep) / behind  # ahead ** 2 * phi2(-ahead) / behind
    return Update(keep, 1.0 - keep + extra, -extra)


@dataclass(frozen=True)
class Calibration:
    """How far the final latent is for a sum of errors, as shares of what a seed changes.

    After the correction two errors stay: that of the corrected values, and that of predictions made from a wrong
    latent. Skips are allowed while ``margin * factor * sum ** power`` stays inside of the budget. The estimate for the
    report is ``shown * sum``, or without it ``factor * sum ** power``: a power above 1 fits what the rule decides, but
    is far too small where long rows of small errors were skipped.
    """

    factor: float
    power: float = 1.0
    margin: float = 2.0
    shown: float | None = None

    def cautious(self, errors: float) -> float:
        return float(self.margin * self.factor * errors**self.power)

    def estimate(self, errors: float) -> float:
        return self.cautious(errors) / self.margin if self.shown is None else self.shown * errors


@dataclass(frozen=True)
class Scheduler:
    """A scheduler of diffusers that steps as a sampler does, by the name of its class, where it has these settings."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sampler:
    """One sampler. Fields that are not known keep their defaults.

    Attributes:
        update: the weights with which its next latent is made of its predictions.
        order: order of that update: a prediction between two known ones is on a polynomial of the same order.
        once_a_step: whether it calls the network once for each step, at its noise level, and then the callback.
        calibration: constants of the budget of Reuse Steps, measured with this sampler on a UNet.
        schedulers: its names in diffusers.
        webui: name of its function in Stable Diffusion WebUI and Forge, where that is another one than ComfyUI's.
        chooses_levels: its title in WebUI and Forge, where its function chooses its noise levels itself there.
    """

    update: Solver | None = None
    order: int = 1
    once_a_step: bool = False
    calibration: Calibration | None = None
    schedulers: tuple[Scheduler, ...] = ()
    webui: str = ""
    chooses_levels: str = ""


def _multistep(algorithm: str, order: int, **settings: str) -> Scheduler:
    return Scheduler("DPMSolverMultistepScheduler", {"algorithm_type": algorithm, "solver_order": order, **settings})


_EULER = Sampler(
    update=euler,
    once_a_step=True,
    calibration=Calibration(1.6, 1.5, 2.5, shown=0.6),
    schedulers=(
        Scheduler("EulerDiscreteScheduler"),
        Scheduler("FlowMatchEulerDiscreteScheduler"),
        Scheduler("DDIMScheduler"),
        Scheduler("DDIMParallelScheduler"),
        Scheduler("CogVideoXDDIMScheduler"),
        _multistep("dpmsolver", 1),
        _multistep("dpmsolver++", 1),
    ),
)
_NO_MORE_KNOWN = (
    *("euler_cfg_pp", "euler_ancestral_cfg_pp", "dpmpp_2m_cfg_pp", "gradient_estimation_cfg_pp", "ipndm", "ipndm_v"),
    *("res_multistep_ancestral", "res_multistep_cfg_pp", "res_multistep_ancestral_cfg_pp"),
)

SAMPLERS: dict[str, Sampler] = {
    **dict.fromkeys(_NO_MORE_KNOWN, Sampler(once_a_step=True)),
    "euler": _EULER,
    "ddim": _EULER,
    "euler_ancestral": Sampler(
        once_a_step=True,
        calibration=Calibration(1.8),
        schedulers=(Scheduler("EulerAncestralDiscreteScheduler"),),
    ),
    "dpmpp_2m": Sampler(
        update=dpmpp_2m,
        order=2,
        once_a_step=True,
        calibration=Calibration(0.7),
        schedulers=(_multistep("dpmsolver++", 2, solver_type="midpoint"),),
    ),
    "dpmpp_2m_sde": Sampler(
        once_a_step=True,
        calibration=Calibration(1.6, margin=1.1),
        schedulers=(_multistep("sde-dpmsolver++", 2, solver_type="midpoint"),),
    ),
    "dpmpp_3m_sde": Sampler(once_a_step=True, calibration=Calibration(2.0, margin=1.65)),
    "res_multistep": Sampler(
        update=res_multistep,
        order=2,
        once_a_step=True,
        calibration=Calibration(0.7, margin=2.5),
        schedulers=(_multistep("dpmsolver++", 2, solver_type="heun"),),
    ),
    "deis": Sampler(once_a_step=True, calibration=Calibration(1.5)),
    "lms": Sampler(
        once_a_step=True,
        calibration=Calibration(1.0),
        schedulers=(Scheduler("LMSDiscreteScheduler"),),
    ),
    "gradient_estimation": Sampler(once_a_step=True, calibration=Calibration(0.7, margin=3.5)),
    "er_sde": Sampler(once_a_step=True, calibration=Calibration(1.2, margin=2.75)),
    "ddpm": Sampler(once_a_step=True, schedulers=(Scheduler("DDPMScheduler"),)),
    "lcm": Sampler(once_a_step=True, schedulers=(Scheduler("LCMScheduler"),)),
    "heun": Sampler(
        calibration=Calibration(0.5, margin=2.5),
        schedulers=(Scheduler("HeunDiscreteScheduler"), Scheduler("FlowMatchHeunDiscreteScheduler")),
    ),
    "dpm_2": Sampler(schedulers=(Scheduler("KDPM2DiscreteScheduler"),)),
    "dpm_2_ancestral": Sampler(schedulers=(Scheduler("KDPM2AncestralDiscreteScheduler"),)),
    "uni_pc": Sampler(calibration=Calibration(0.65, margin=2.5), webui="unipc", chooses_levels="UniPC"),
    "uni_pc_bh2": Sampler(),
    "dpm_fast": Sampler(chooses_levels="DPM fast"),
    "dpm_adaptive": Sampler(chooses_levels="DPM adaptive"),
    "restart": Sampler(webui="restart_sampler", chooses_levels="Restart"),
}
"""Calibrations were measured with ``benchmarks/step_reuse_constants.py``."""

_UNKNOWN = Sampler()


def sampler_of(name: str | None) -> Sampler:
    """Return the record of a sampler; an empty one if it has none. ``_gpu`` only says where the noise is made."""
    return SAMPLERS.get((name or "").removesuffix("_gpu"), _UNKNOWN)


OTHER = Calibration(3.0)
"""For other samplers: ``ipndm`` needs it, and it is too careful for most."""

FLOW_MARGIN = 2.0
"""So many times as large are the margins with flow matching. With the UNet's own, one of six pictures of
``benchmarks/weights/icons64_lumina.safetensors`` left a budget of 0.05 without guidance (``euler``); now none."""


def calibration_of(name: str | None, flow: bool) -> tuple[Calibration, bool]:
    """Return the constants for a sampler, with a network of flow matching or another, and whether it was measured."""
    found = sampler_of(name).calibration
    constants = found or OTHER
    return (replace(constants, margin=constants.margin * FLOW_MARGIN) if flow else constants), found is not None
