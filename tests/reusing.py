"""Reuse Steps on a MODEL as tests use it: with much room, and with a look at what it has done."""

from __future__ import annotations

import torch

LOOSE = {"budget": 1.0, "forecast": "hold", "reuse_forecast": True, "reuse_guidance": False}


def reuse(studio, model, **settings):
    return studio.run("PacelineReuseSteps", model=model, **{**LOOSE, **settings})


def technique(model):
    from paceline.optimizers.hosts.comfyui.model import stack_of

    return stack_of(model).find("step_reuse")


def outcome(model):
    return technique(model).outcome


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
