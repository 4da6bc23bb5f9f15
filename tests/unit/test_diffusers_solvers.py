"""What Reuse Steps takes each scheduler of diffusers for: noise levels and updates."""

from __future__ import annotations

from typing import Any

import diffusers
import pytest
import torch
from paceline.optimizers.in_diffusers.noise_levels import is_changed, noise_levels, solver_of
from paceline.optimizers.models.samplers import SAMPLERS, Place

SD = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
NO_CLIP = {**SD, "clip_sample": False}
PLUS = {**SD, "algorithm_type": "dpmsolver++"}

EXACT: list[tuple[str, dict[str, Any], str]] = [
    ("EulerDiscrete", SD, "euler"),
    ("EulerDiscrete", {**SD, "use_karras_sigmas": True}, "euler"),
    ("EulerDiscrete", {**SD, "prediction_type": "v_prediction", "timestep_spacing": "trailing",
                       "rescale_betas_zero_snr": True}, "euler"),
    ("EulerDiscrete", {**SD, "prediction_type": "v_prediction", "timestep_type": "continuous", "sigma_min": 0.002,
                       "sigma_max": 700.0, "use_karras_sigmas": True}, "euler"),
    ("DDIM", {**NO_CLIP, "steps_offset": 1}, "euler"),
    ("DDIM", {**NO_CLIP, "set_alpha_to_one": False, "prediction_type": "v_prediction"}, "euler"),
    ("DDIM", {**NO_CLIP, "prediction_type": "sample", "timestep_spacing": "trailing"}, "euler"),
    ("CogVideoXDDIM", {"clip_sample": False, "prediction_type": "v_prediction", "timestep_spacing": "trailing",
                       "rescale_betas_zero_snr": True, "snr_shift_scale": 1.0}, "euler"),
    ("FlowMatchEulerDiscrete", {}, "euler"),
    ("FlowMatchEulerDiscrete", {"shift": 3.0, "use_karras_sigmas": True, "shift_terminal": 0.1}, "euler"),
    ("DPMSolverMultistep", {**PLUS, "use_karras_sigmas": True}, "dpmpp_2m"),
    ("DPMSolverMultistep", {**PLUS, "use_lu_lambdas": True}, "dpmpp_2m"),
    ("DPMSolverMultistep", {**PLUS, "prediction_type": "v_prediction", "lower_order_final": False}, "dpmpp_2m"),
    ("DPMSolverMultistep", {**PLUS, "prediction_type": "sample", "euler_at_final": True}, "dpmpp_2m"),
    ("DPMSolverMultistep", {**PLUS, "solver_type": "heun"}, "res_multistep"),
    ("DPMSolverMultistep", {**PLUS, "solver_order": 1}, "euler"),
]  # fmt: skip
"""Schedulers whose step is taken for a solver's whose errors are taken back."""

OTHERS: list[tuple[str, dict[str, Any], str | None]] = [
    ("EulerDiscrete", {**SD, "final_sigmas_type": "sigma_min"}, "euler"),
    ("EulerAncestralDiscrete", SD, "euler_ancestral"),
    ("HeunDiscrete", SD, "heun"),
    ("KDPM2Discrete", SD, "dpm_2"),
    ("KDPM2AncestralDiscrete", SD, "dpm_2_ancestral"),
    ("DPMSolverSDE", SD, None),
    ("LMSDiscrete", SD, "lms"),
    ("PNDM", {**SD, "skip_prk_steps": True, "steps_offset": 1}, None),
    ("DDPM", NO_CLIP, "ddpm"),
    ("DDIM", SD, None),
    ("DDIM", {**NO_CLIP, "timestep_spacing": "linspace"}, None),
    ("DDIM", {**NO_CLIP, "thresholding": True}, None),
    ("DPMSolverMultistep", {**PLUS, "solver_order": 3}, None),
    ("DPMSolverMultistep", {**SD, "algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"}, None),
    ("DPMSolverMultistep", {**SD, "algorithm_type": "sde-dpmsolver++"}, "dpmpp_2m_sde"),
    ("DPMSolverMultistep", {**PLUS, "final_sigmas_type": "sigma_min"}, None),
    ("DPMSolverSinglestep", PLUS, None),
    ("UniPCMultistep", SD, None),
    ("LCM", SD, "lcm"),
    ("FlowMatchHeunDiscrete", {}, "heun"),
    ("FlowMatchLCM", {}, None),
    ("FlowMatchEulerDiscrete", {"stochastic_sampling": True}, None),
]


UNKNOWN = ("EDMEuler", "EDMDPMSolverMultistep", "CosineDPMSolverMultistep", "IPNDM", "CMStochasticIterative", "SCM")


def made(name: str, config: dict[str, Any]) -> Any:
    return getattr(diffusers, name + "Scheduler")(**config)


def scaled(scheduler: Any, sample: torch.Tensor, index: int) -> torch.Tensor:
    scale = getattr(scheduler, "scale_model_input", None)
    return sample if scale is None else scale(sample, scheduler.timesteps[index])


def network(latent: torch.Tensor, sigma: float) -> torch.Tensor:
    """A picture without noise that depends on the latent, as a network's does."""
    return torch.tanh(latent / (1.0 + sigma)) + 0.3 * torch.sin(latent.roll(1, -1) / (1.0 + sigma))


def begin(scheduler: Any, steps: int, start: int) -> tuple[torch.Tensor, list[int]]:
    """Make a schedule that begins at a step; return the noise and the numbers of the steps."""
    scheduler.set_timesteps(steps)
    if start and hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(start)
    generator = torch.Generator().manual_seed(7)
    sample = torch.randn(2, 4, 8, 8, generator=generator, dtype=torch.float64).float()
    return sample * float(getattr(scheduler, "init_noise_sigma", 1.0)), list(range(start, len(scheduler.timesteps)))


def test_the_schedulers_of_the_table_are_in_diffusers() -> None:
    names = {known.name for sampler in SAMPLERS.values() for known in sampler.schedulers}
    assert not [name for name in names if not hasattr(diffusers, name)]


@pytest.mark.parametrize("start", [0, 6])
@pytest.mark.parametrize("steps", [10, 25])
@pytest.mark.parametrize(("name", "config", "solver"), EXACT)
def test_the_step_is_the_solvers(name: str, config: dict[str, Any], solver: str, steps: int, start: int) -> None:
    """Only then is what a forecast did to the latent taken back by the right amount: at every step but the last."""
    scheduler = made(name, config)
    sample, numbers = begin(scheduler, steps, start)
    assert solver_of(scheduler) == solver
    levels = noise_levels(scheduler)
    assert levels is not None
    schedule = levels.steps(start, len(numbers) + start)
    assert len(schedule) == len(numbers) + 1
    before: tuple[Place, torch.Tensor] | None = None
    for number in numbers[:-1]:
        at = levels.at(number)
        latent = at.latent(scaled(scheduler, sample, number))
        denoised = network(latent, at.sigma)
        sample = scheduler.step(at.output(latent, denoised), scheduler.timesteps[number], sample)[0]
        place = Place.among(schedule, at.sigma)
        assert (place.position, place.ahead) == (number - start, levels.asked[number + 1])
        update = SAMPLERS[solver].update(place, None if before is None else before[0])
        expected = latent * update.keep + denoised * update.now
        if before is not None:
            expected += before[1] * update.before
        found = levels.at(number + 1).latent(scaled(scheduler, sample, number + 1))
        assert torch.allclose(found, expected, rtol=1e-4, atol=2e-4 * (1 + at.sigma)), (number, at.sigma)
        before = place, denoised


@pytest.mark.parametrize(("name", "config", "solver"), [*EXACT, *OTHERS])
def test_predictions_are_what_the_scheduler_takes_them_for(
    name: str, config: dict[str, Any], solver: str | None
) -> None:
    """A network that always says the same picture leads to this picture, whatever the solver and its noise."""
    scheduler = made(name, config)
    sample, numbers = begin(scheduler, 20, 0)
    assert solver_of(scheduler) == solver
    levels = noise_levels(scheduler)
    assert levels is not None
    picture = torch.linspace(-0.9, 0.9, 512).reshape(2, 4, 8, 8)
    place = Place.among(levels.steps(0, len(numbers)), levels.asked[0])
    assert place.position == 0.0
    for number in numbers:
        at = levels.at(number)
        now = Place.among(levels.steps(0, len(numbers)), at.sigma)
        assert now.position >= place.position
        place = now
        output = at.output(at.latent(scaled(scheduler, sample, number)), picture)
        sample = scheduler.step(output, scheduler.timesteps[number], sample)[0]
    stops_early = levels.levels[-1] > 0 or name in ("PNDM", "TCD") or config.get("set_alpha_to_one") is False
    assert float((sample - picture).abs().max()) < (0.15 if stops_early else 3e-3)


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_predictions_are_not_guessed(name: str) -> None:
    scheduler = made(name, {})
    scheduler.set_timesteps(2 if name == "SCM" else 12)
    assert noise_levels(scheduler) is None


def test_rising_noise_levels_are_not_taken_for_a_schedule() -> None:
    scheduler = made("DDIMInverse", SD)
    scheduler.set_timesteps(12)
    assert noise_levels(scheduler) is None


@pytest.mark.parametrize("given", [{"eta": 0.5}, {"s_churn": 1.0}, {"per_token_timesteps": torch.zeros(3)}])
def test_arguments_that_make_another_step_are_noticed(given: dict[str, Any]) -> None:
    assert is_changed(given)
    assert not is_changed({"eta": 0.0, "generator": torch.Generator(), "return_dict": False})
