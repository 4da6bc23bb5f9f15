"""Reuse Steps on pipelines of every class: what it leaves out, and that it leaves no trace."""

from __future__ import annotations

import copy
from typing import Any

import diffusers
import pytest
import torch
from cases import often
from diffusers_host.pipelines import NamedPipeline
from paceline import ReuseSteps, optimize, report, restore
from random_pipelines import PROMPTS, distance, picture, small

NAMES = ("sd15", "sdxl", "flux", "sd3", "z-image")


def counted(module: torch.nn.Module) -> list[int]:
    """Return a list that grows by the rows of each call of a network."""
    rows: list[int] = []
    blocks = ("down_blocks", "transformer_blocks", "layers")
    block = next(found[0] for name in blocks if (found := getattr(module, name, None)) is not None)
    block.register_forward_hook(lambda _, __, out: rows.append(1))
    return rows


@pytest.mark.parametrize("name", often(("sd15", "flux"), NAMES))
def test_steps_are_left_out(name: str) -> None:
    pipeline = small(name)
    plain = picture(pipeline, steps=16)
    optimize(pipeline.pipe, ReuseSteps(budget=0.5 if name == "z-image" else 0.15))
    calls = counted(pipeline.denoiser)
    found = picture(pipeline, steps=16)
    (line,) = report(pipeline.pipe).lines
    said = line.summary.counts
    assert said["evaluations"] in (16, 17)  # PNDM begins with one more
    assert said["forecast"] > 0, line.summary
    assert len(calls) == said["computed"]
    assert ("measured on two small transformers" in str(line.summary.details)) == (name in ("flux", "sd3", "z-image"))
    assert distance(found, plain) < 0.2
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline, steps=16), plain)


def reused(pipeline: Any, component: str = "unet") -> dict[str, Any]:
    """What Reuse Steps counted on a component."""
    lines = report(pipeline.pipe).lines
    return next(x.summary.counts for x in lines if (x.component, x.title) == (component, "Reuse Steps"))


def with_scheduler(name: str, scheduler: str, **config: Any) -> NamedPipeline:
    pipeline = small(name)
    made = getattr(diffusers, scheduler + "Scheduler")
    pipeline.pipe.scheduler = made.from_config(pipeline.pipe.scheduler.config, **config)
    return pipeline


def test_a_controlnet_is_left_out_too() -> None:
    pipeline = with_scheduler("sd15-controlnet", "EulerDiscrete")
    control: Any = pipeline.pipe.controlnet
    calls: list[int] = []
    handle = control.mid_block.register_forward_hook(lambda *_: calls.append(1))
    optimize(pipeline.pipe, ReuseSteps(budget=0.15))
    picture(pipeline, steps=14)
    handle.remove()
    found, there = reused(pipeline), reused(pipeline, "controlnet")
    assert found["forecast"] > 0
    assert len(calls) == found["computed"]
    assert there == {"calls": 14, "left_out": found["forecast"]}
    restore(pipeline.pipe)
    assert "forward" not in vars(control)


def test_what_somebody_does_to_the_latent_is_not_taken_back() -> None:
    """A callback moves the latent after each step. That is no error of a forecast."""

    def moved(pipe: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        values["latents"] = values["latents"] + 0.3 if step % 2 else values["latents"].sub_(0.1)
        return values

    options: Any = {"steps": 16, "callback_on_step_end": moved, "output_type": "latent"}
    pipeline = with_scheduler("sd15", "DPMSolverMultistep")
    plain = picture(pipeline, **options)
    optimize(pipeline.pipe, ReuseSteps(budget=0.5))
    found = picture(pipeline, **options)
    assert reused(pipeline)["forecast"] > 3
    assert distance(found, plain) < 0.05


def test_noise_that_a_step_adds_is_not_taken_back() -> None:
    pipeline = with_scheduler("sd15", "DDIM", clip_sample=False)
    plain = picture(pipeline, steps=16, eta=1.0)
    optimize(pipeline.pipe, ReuseSteps(budget=0.3))
    assert distance(picture(pipeline, steps=16, eta=1.0), plain) < 0.1
    assert reused(pipeline)["forecast"] > 0
    assert "not measured" in str(report(pipeline.pipe).lines[0].summary.details)


def test_a_run_that_was_broken_off_leaves_nothing() -> None:
    pipeline = with_scheduler("sd15", "EulerDiscrete")
    optimize(pipeline.pipe, ReuseSteps(budget=0.15))
    first = picture(pipeline, steps=14)

    def stop(pipe: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        if step == 9:
            raise KeyboardInterrupt
        return values

    with pytest.raises(KeyboardInterrupt):
        picture(pipeline, steps=14, callback_on_step_end=stop)
    scheduler: Any = copy.deepcopy(pipeline.pipe.components["scheduler"])
    assert scheduler.step.__self__ is scheduler  # not the original's
    assert torch.equal(picture(pipeline, steps=14), first)
    assert "step" not in vars(pipeline.pipe.components["scheduler"])


def test_two_passes_in_two_calls() -> None:
    """Flux guides by a second call of the transformer in each step."""
    pipeline = small("flux")
    prompt: Any = pipeline.arguments(pipeline.pipe, list(PROMPTS), 128)
    negative = {"negative_" + name: prompt[name] * -1 for name in ("prompt_embeds", "pooled_prompt_embeds")}
    options: Any = {"steps": 16, "true_cfg_scale": 4.0, **negative}
    plain = picture(pipeline, **options)
    optimize(pipeline.pipe, ReuseSteps(budget=0.15))
    calls = counted(pipeline.denoiser)
    found = picture(pipeline, **options)
    said = reused(pipeline, "transformer")
    assert said["forecast"] > 0 and said["evaluations"] == 16 and len(calls) == 2 * said["computed"]
    assert distance(found, plain) < 0.1


@pytest.mark.parametrize(
    ("scheduler", "config", "reason"),
    [
        ("DDIM", {"clip_sample": True}, "clips"),
        ("EDMEuler", {}, "not known"),
        ("DEISMultistep", {}, "add no noise (EulerDiscreteScheduler, "),
    ],
)
def test_an_unknown_scheduler_passes_through(scheduler: str, config: dict[str, Any], reason: str) -> None:
    pipeline = with_scheduler("sd15", scheduler, **config)
    plain = picture(pipeline, steps=9)
    optimize(pipeline.pipe, ReuseSteps(budget=1.0))
    assert torch.equal(picture(pipeline, steps=9), plain)
    assert reason in str(report(pipeline.pipe).lines[0].summary.details)


def test_a_short_second_call_does_not_hide_what_the_first_left_out() -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, ReuseSteps(budget=0.15))
    picture(pipeline, steps=16)
    left_out = reused(pipeline)["forecast"]
    picture(pipeline, steps=4)
    (line,) = report(pipeline.pipe).lines
    assert left_out > 0 and line.summary.headline.endswith(f"{left_out} forecast, in 1 of 2 runs")
    assert line.summary.details[1].startswith("run 2: nothing was reused: ")
