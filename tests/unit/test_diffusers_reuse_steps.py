"""Reuse Steps on pipelines of every class: what it leaves out, and that it leaves no trace."""

from __future__ import annotations

import diffusers
import pytest
import torch
from paceline import ReuseSteps, optimize, report, restore
from paceline.optimizers.hosts.diffusers import step_reuse
from paceline.optimizers.step_reuse.plan import Plan
from random_pipelines import distance, picture, small

NAMES = ("sd15", "sdxl", "flux", "sd3")


def counted(module: torch.nn.Module) -> list[int]:
    """Return a list that grows by the rows of each call of a network."""
    rows: list[int] = []
    block = next(iter(getattr(module, "down_blocks", None) or module.transformer_blocks))
    block.register_forward_hook(lambda _, __, out: rows.append(1))
    return rows


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_left_out(name: str) -> None:
    pipeline = small(name)
    plain = picture(pipeline, steps=16)
    optimize(pipeline.pipe, ReuseSteps(budget=0.15))
    calls = counted(pipeline.denoiser)
    found = picture(pipeline, steps=16)
    (line,) = report(pipeline.pipe).lines
    said = line.summary.counts
    assert said["evaluations"] in (16, 17)  # PNDM begins with one more
    assert said["forecast"] + said["guidance_reused"] > 0, line.summary
    assert len(calls) == said["computed"] + said["guidance_reused"]
    assert ("measured on one small transformer" in str(line.summary.details)) == (name in ("flux", "sd3"))
    assert distance(found, plain) < 0.2
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline, steps=16), plain)


@pytest.mark.parametrize("name", NAMES)
def test_a_budget_of_nothing_changes_no_bit(name: str) -> None:
    pipeline = small(name)
    plain = picture(pipeline, steps=9)
    optimize(pipeline.pipe, ReuseSteps(budget=0.0))
    assert torch.equal(picture(pipeline, steps=9), plain)


@pytest.mark.parametrize("scheduler", ["DDIMScheduler", "EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler"])
@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
@pytest.mark.parametrize("number", [1, 9])
def test_the_picture_without_noise_is_the_one_that_the_scheduler_sees(
    scheduler: str, prediction: str, number: int
) -> None:
    made = getattr(diffusers, scheduler)(prediction_type=prediction, beta_schedule="scaled_linear")
    if hasattr(made.config, "clip_sample"):
        made = type(made).from_config(made.config, clip_sample=False)
    made.set_timesteps(12)
    levels = step_reuse._levels(made)
    generator = torch.Generator().manual_seed(1)
    sample, output = (torch.randn(1, 4, 8, 8, generator=generator) for _ in range(2))
    given = made.scale_model_input(sample, made.timesteps[number])
    expected = made.step(output, made.timesteps[number], sample).pred_original_sample
    prediction_here = step_reuse._Prediction.of(made, levels[number])
    latent = prediction_here.latent(given)
    denoised = prediction_here.denoised(latent, output)
    assert torch.allclose(denoised, expected, rtol=2e-3, atol=2e-3 * levels[number])
    assert torch.allclose(prediction_here.output(latent, denoised), output, atol=1e-4)


def test_a_flow_is_turned_into_a_picture_and_back() -> None:
    made = diffusers.FlowMatchEulerDiscreteScheduler()
    made.set_timesteps(12)
    levels = step_reuse._levels(made)
    assert levels[0] == 1.0 and levels[-1] == 0.0 and len(levels) == 13
    picture_, noise = torch.full((1, 4, 8, 8), 0.5), torch.randn(1, 4, 8, 8)
    sample = (1 - levels[4]) * picture_ + levels[4] * noise
    found = step_reuse._Prediction.of(made, levels[4])
    assert torch.allclose(found.denoised(found.latent(sample), noise - picture_), picture_, atol=1e-5)
    assert torch.allclose(found.output(sample, picture_), noise - picture_, atol=1e-4)


@pytest.mark.parametrize("scheduler", step_reuse.EULER)
def test_the_step_of_these_schedulers_is_eulers(scheduler: str) -> None:
    """Only then is what a forecast did to the latent taken back by the right amount."""
    made = getattr(diffusers, scheduler)()
    if hasattr(made.config, "clip_sample"):
        made = type(made).from_config(made.config, clip_sample=False)
    made.set_timesteps(12)
    levels = step_reuse._levels(made)
    generator = torch.Generator().manual_seed(1)
    sample, output = (torch.randn(1, 4, 8, 8, generator=generator) for _ in range(2))
    if hasattr(made, "sigmas") and not step_reuse._is_flow(made):
        sample = sample * made.sigmas[0]
    number = 0 if hasattr(made, "sigmas") else 5  # those that count their steps begin at the first
    here, after = (step_reuse._Prediction.of(made, levels[number + ahead]) for ahead in (0, 1))
    scale = getattr(made, "scale_model_input", lambda value, _: value)
    latent = here.latent(scale(sample, made.timesteps[number]))
    denoised = here.denoised(latent, output)
    stepped = made.step(output, made.timesteps[number], sample).prev_sample
    found = after.latent(stepped) if not hasattr(made, "sigmas") else stepped  # Euler's latents are not scaled
    keep = levels[number + 1] / levels[number]
    assert torch.allclose(found, latent * keep + denoised * (1 - keep), rtol=1e-2, atol=1e-2)


def test_few_steps_pass_through() -> None:
    pipeline = small("sd15")
    plain = picture(pipeline, steps=4)
    optimize(pipeline.pipe, ReuseSteps(budget=1.0))
    assert torch.equal(picture(pipeline, steps=4), plain)
    (line,) = report(pipeline.pipe).lines
    assert "too few" in str(line.summary.details)


def test_a_plan_for_another_run_is_not_followed() -> None:
    pipeline = small("sd15")
    plan = Plan("Other", "euler", "", 7.0, ("compute",) * 16)
    optimize(pipeline.pipe, ReuseSteps(budget=0.15, plan=plan))
    picture(pipeline, steps=16)
    (line,) = report(pipeline.pipe).lines
    assert "the plan is for Other" in str(line.summary.details)
    assert line.summary.counts["forecast"] + line.summary.counts["guidance_reused"] > 0
