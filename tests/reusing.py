"""Reuse Steps on a MODEL as tests use it: with much room, and with a look at what it has done."""

from __future__ import annotations

import torch


def reuse(studio, model, budget=1.0, **more):
    return studio.run("PacelineReuseSteps", model=model, budget=budget, **more)


def technique(model):
    from paceline.optimizers.in_comfyui.run.stack import stack_of

    return stack_of(model).find("step_reuse")


def outcome(model):
    return technique(model).policy.outcome


class Calls:
    """Counts the calls of a module."""

    def __init__(self, module) -> None:
        self.count = 0
        self._module = module

    def __enter__(self):
        def add(*_):
            self.count += 1

        self._handle = self._module.register_forward_hook(add)
        return self

    def __exit__(self, *_):
        self._handle.remove()


def guided(model, guider, steps=12, sampler="euler", noise=None):
    """Sample with a guider, from given noise ``[batch, 4, height, width]``."""
    import comfy.samplers

    if noise is None:
        noise = torch.randn(1, 4, 24, 16, generator=torch.Generator().manual_seed(1))
    sigmas = comfy.samplers.calculate_sigmas(model.get_model_object("model_sampling"), "normal", steps)
    with torch.inference_mode():
        return guider.sample(noise, torch.zeros_like(noise), comfy.samplers.sampler_object(sampler), sigmas, seed=1)


def computed_steps(studio, model, steps, change, **sampling):
    """Sample, and return the numbers of the computed steps, and that of the first step behind a point of the schedule.

    Args:
        studio: samples.
        model: with Reuse Steps.
        steps: how many.
        change: the point, from 0 to 1, as in conditionings with a range.
        **sampling: see ``Studio.sample``.
    """
    from comfy.samplers import calculate_sigmas

    seen = []

    def look(executor, *args, **kwargs):
        seen.append(float(args[1].flatten()[0]))
        return executor(*args, **kwargs)

    clone = model.clone()
    clone.add_wrapper_with_key("apply_model", "look", look)
    studio.sample(clone, steps=steps, **sampling)
    schedule = clone.get_model_object("model_sampling")
    levels = calculate_sigmas(schedule, "normal", steps).tolist()
    behind = next(number for number, level in enumerate(levels) if level < schedule.percent_to_sigma(change))
    return {min(range(steps), key=lambda number: abs(levels[number] - sigma)) for sigma in seen}, behind
