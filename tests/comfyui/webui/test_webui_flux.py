"""Reuse Steps on Flux in Forge, by a stand-in of Forge around ComfyUI's Flux; what is for UNets says so."""

from types import SimpleNamespace

import pytest
import torch
from comfy_host import transformers
from paceline.core.technique import ATTENTION, STEP_REUSE
from paceline.optimizers.step_reuse.settings import StepReuseSettings
from reusing import outcome, reuse
from webui_drawing import LOOSE, MERGE, SIZE, Host


@pytest.fixture(scope="module")
def flux(studio):
    return transformers.build("flux")


@pytest.fixture
def forge(flux):
    summary = torch.ones(1, 16)
    prompt, negative = (transformers.conditioning("flux", seed=seed, pooled_output=summary) for seed in (1, 2))
    return Host(SimpleNamespace(model=flux, positive=prompt, negative=negative), forge=True)


def comfyui_draws(studio, forge, model, **options):
    given = {"positive": forge.studio.positive, "negative": forge.studio.negative, "latent": torch.zeros(1, 16, *SIZE)}
    return studio.sample(model, **given | options)


@pytest.mark.parametrize("cfg", [1.0, 3.0])
def test_as_many_steps_are_reused_as_in_comfyui(studio, forge, flux, cfg):
    sampling = {"cfg": cfg, "steps": 16}
    torch.testing.assert_close(
        forge.draw(**sampling), comfyui_draws(studio, forge, flux, **sampling), rtol=1e-3, atol=1e-3
    )
    settings = StepReuseSettings(budget=1.0)
    found = forge.draw({STEP_REUSE: settings}, **sampling)
    model = reuse(studio, flux)
    expected, counts = comfyui_draws(studio, forge, model, **sampling), forge.said[-1].summary.counts
    assert counts["forecast"] == outcome(model).forecast > 0
    assert counts["computed"] == outcome(model).computed
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
    assert "measured on two small transformers only" in str(forge.said[-1].summary.details)


def test_what_is_for_unets_leaves_the_picture_alone_and_says_so(forge):
    plain = forge.draw(steps=3)
    assert torch.equal(forge.draw(MERGE | {ATTENTION: "vanilla"}, steps=3), plain)
    assert [said.summary.state for said in forge.said] == ["inactive"] * 2
    assert "Apply ToMe is for UNets (SD 1.x, SD 2.x, SDXL, SVD), and Flux has none" in str(
        forge.said[1].summary.details
    )


def test_another_step_cache_for_flux_goes_first(forge, flux):
    """Forge's block caches put their function in the place of ``inner_forward``, which Forge's Flux calls."""

    def patched_inner_forward(*args, **options):
        raise AssertionError("the stand-in's network does not call it")

    patched_inner_forward.__module__ = "blockcache.py"
    network = flux.model.diffusion_model
    network.inner_forward = patched_inner_forward
    try:
        assert torch.equal(forge.draw(LOOSE), forge.draw())
    finally:
        del network.inner_forward
    assert "another extension leaves out steps too (blockcache.py." in str(forge.said[0].summary.details)
