"""Reuse Steps on real models: what it leaves out, that it leaves no trace, and that it says the truth."""

from __future__ import annotations

import emoji_model
import pytest
import torch
from comfy_host import in_process, transformers
from reusing import Calls, reuse, technique

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def emoji(studio):
    model, encode = emoji_model.load()
    return model, encode(encode.names[3]), encode("")


def draw(emoji, model, steps=20, sampler="euler", scheduler="normal", seed=3, cfg=2.0, **options):
    latent = options.pop("latent", torch.zeros(options.pop("batch", 1), 4, 32, 32))
    return in_process.sample(model, emoji[1], emoji[2], latent, seed, steps, cfg, sampler, scheduler, **options)


def test_steps_are_left_out_and_the_picture_stays_near(studio, emoji):
    model = reuse(studio, emoji[0], budget=0.5)
    full = draw(emoji, emoji[0])
    with Calls(model.model.diffusion_model) as network:
        found = draw(emoji, model)
    said = technique(model).last_summary()
    assert network.count == said.counts["computed"]
    assert said.counts["forecast"] >= 6, said
    assert (found - full).square().mean().sqrt() < 0.05
    assert torch.equal(draw(emoji, emoji[0]), full)


def test_a_transformer_is_told_from_a_unet(studio, emoji):
    from paceline.optimizers.hosts.comfyui.structure.model import is_unet

    assert is_unet(emoji[0]) and not is_unet(transformers.build("flux"))


@pytest.mark.parametrize("name", transformers.WITH_SOUND)
def test_each_frame_and_the_sound_are_judged(studio, name):
    """Three frames and the sound; a mask that keeps the first frame and the sound leaves two."""
    from comfy.nested_tensor import NestedTensor

    model, prompt = reuse(studio, transformers.build(name)), transformers.conditioning(name)
    samples = transformers.latent(name)
    masks = [torch.ones_like(stream[:, :1]) for stream in samples.unbind()]
    masks[0][:, :, 0] = masks[1][:] = 0
    for latent, parts in ({"samples": samples}, 4), ({"samples": samples, "noise_mask": NestedTensor(masks)}, 2):
        in_process.sample(model, prompt, prompt, latent, 3, 16, 2.0, "euler", "simple")
        assert f"of the worst of {parts} frames and streams" in str(technique(model).last_summary().details)


def test_a_sampler_has_the_name_in_the_menu(studio):
    """In a run the sampler is a function; the constants of the budget are known by the name in the menu."""
    from comfy.samplers import SAMPLER_NAMES, sampler_object
    from paceline.optimizers.hosts.comfyui.step_reuse.technique import sampler_name
    from paceline.optimizers.samplers import SAMPLERS

    assert SAMPLERS.keys() - set(SAMPLER_NAMES) == {"restart"}  # only WebUI has it
    found = {name: sampler_name(sampler_object(name)) for name in SAMPLER_NAMES}
    assert {name: said for name, said in found.items() if said != name} == {"ddim": "euler"}
