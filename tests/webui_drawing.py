"""Drawing with techniques in stand-ins of Stable Diffusion WebUI and Forge, around ComfyUI's real UNet."""

import pytest
import torch
import webui_stand_ins as hosts
from paceline.optimizers.core.technique import STEP_REUSE, TOKEN_MERGING
from paceline.optimizers.in_webui import accelerate
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from paceline.optimizers.token_merging.tome_settings import TokenMergingSettings

SIZE = (24, 16)
MERGE = {TOKEN_MERGING: TokenMergingSettings(method="merge")}
LOOSE = {STEP_REUSE: StepReuseSettings(budget=1.0)}
BOTH_HOSTS = pytest.mark.parametrize("host", ["webui", "forge"], indirect=True)
"""For what the hosts do each in their own way; all else runs in Forge with each change, and each night in both."""


class Host:
    """One of the two hosts: draws with a choice of techniques, and keeps what they said."""

    def __init__(self, studio, forge):
        self.studio, self.forge = studio, forge
        self.positive, self.negative = hosts.always(studio.positive), [hosts.always(studio.negative)[0].schedules]
        self.said = []

    def drawing(self, **options):
        drawing = hosts.Drawing(self.studio.model, self.forge, **options)
        if self.forge:
            for model in filter(None, (drawing.sd_model, drawing.refiner)):
                hosts.forge_model(model)
        return drawing

    def draw(
        self, choice=None, batch=1, sampler="euler", drawing=None, prompts=None, negative=None, scripts=(), **options
    ):
        import comfy.k_diffusion.sampling

        function = sampler if callable(sampler) else getattr(comfy.k_diffusion.sampling, f"sample_{sampler}")
        empty = torch.zeros(1, self.studio.model.model.latent_format.latent_channels, *SIZE)
        noise = torch.cat([in_process_noise(empty, seed) for seed in range(7, 7 + batch)])
        ours = [] if choice is None else [lambda p: accelerate(p, choice, self.said.extend)]
        return (drawing or self.drawing()).sample(
            function,
            noise,
            prompts or hosts.prompts(*[self.positive] * batch),
            negative or self.negative * batch,
            [*scripts, *ours],
            **options,
        )

    @property
    def lines(self):
        return [f"Paceline {one.title}: {one.text}" for one in self.said]


def in_process_noise(latent, seed):
    import comfy.sample

    return comfy.sample.prepare_noise(latent, seed)


def shadowed(network):
    """Return what stands in the place of methods and layers, by module: all that we would put there."""
    names = {"forward", "to_q", "to_k", "to_v"}
    return {name: names & set(module.__dict__) for name, module in network.named_modules()}
