"""Beside what the hosts and other extensions do to a network: tiles, quantised weights, caches; and on Flux."""

import functools
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from cases import often
from comfy_host import transformers
from paceline.optimizers.core.technique import ATTENTION, STEP_REUSE, TOKEN_MERGING
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from paceline.optimizers.token_merging.tome_settings import TokenMergingSettings
from reusing import outcome, reuse
from webui_drawing import BOTH_HOSTS, LOOSE, MERGE, SIZE, Host

pytestmark = pytest.mark.usefixtures("untouched")

ALL = MERGE | LOOSE | {ATTENTION: "vanilla"}


def in_tiles(p):
    """Compute each call for passes in two halves, as MultiDiffusion does without overlap."""
    if p.forge:

        def wrapper(apply, call):
            halves = [apply(half, call["timestep"], **call["c"]) for half in call["input"].chunk(2, 3)]
            return torch.cat(halves, 3)

        p.sd_model.forge_objects.unet.model_options["model_function_wrapper"] = wrapper
        return
    inner = p.sampler.model_wrap_cfg.inner_model
    whole = type(inner).forward

    def forward(x, sigma, **options):
        return torch.cat([whole(inner, half, sigma, **options) for half in x.chunk(2, 3)], 3)

    inner.forward = forward


@BOTH_HOSTS
def test_tiles_are_pictures_of_their_own(host):
    plain = host.draw(scripts=[in_tiles])
    assert not torch.equal(plain, host.draw())
    assert not torch.equal(host.draw(ALL, scripts=[in_tiles]), plain)
    assert [said.summary.state for said in host.said] == ["active"] * 3, host.lines
    assert host.lines[1] == "Paceline Apply ToMe: active in 2 of 3 self-attention blocks"


@contextmanager
def in_halves(network, names):
    """Another extension: takes the place of the ``forward`` of layers, as Regional Prompter, NegPiP and HyperTile do.

    Both halves of the tokens are computed for themselves; what is yielded are HyperTile's marks.
    """
    layers = [module for name, module in network.named_modules() if name.endswith(names)]

    def made(layer):
        mark = SimpleNamespace(enabled=True, forward=layer.forward)

        @functools.wraps(mark.forward)
        def halves(x, *args, **options):
            if not mark.enabled:
                return mark.forward(x, *args, **options)
            return torch.cat([mark.forward(half, *args, **options) for half in x.chunk(2, 1)], 1) * 0.9

        layer.forward = halves
        return mark

    try:
        yield [(layer, made(layer)) for layer in layers]
    finally:
        for layer in layers:
            del layer.forward
            layer.__dict__.pop("__webui_hypertile_params", None)


FULLY_MERGED = {TOKEN_MERGING: TokenMergingSettings(method="merge", merge_crossattn=True, merge_mlp=True)}


@pytest.mark.parametrize(
    "names", often([("attn1", "attn2", "ff")], [("attn1",), ("attn2",), ("attn1", "attn2", "ff")]), ids="+".join
)
def test_layers_that_another_extension_computes_are_left_to_it(host, studio, names):
    """Only rounding may differ with another backend, and with token merging what is not merged."""
    plain = host.draw(steps=3)
    with in_halves(studio.model.model.diffusion_model, names):
        theirs = host.draw(steps=3)
        assert (theirs - plain).norm() > 0.01 * plain.norm()
        torch.testing.assert_close(host.draw({ATTENTION: "vanilla"}, steps=3), theirs, rtol=1e-3, atol=1e-3)
        merged = host.draw(FULLY_MERGED, steps=3)
    attention, merging = (said.summary for said in host.said)
    who = "code in test_webui_beside_others.py computes this layer itself"
    assert attention.state == ("partly" if len(names) == 1 else "inactive")
    assert who in str(attention.details) and who in str(merging.details)
    assert torch.equal(merged, theirs) == ("attn1" in names)


def test_hypertile_goes_first_and_is_in_nobodys_way_when_it_is_off(host, studio):
    alone = host.draw(MERGE, steps=3)
    with in_halves(studio.model.model.diffusion_model, ("attn1",)) as marks:
        for layer, mark in marks:
            setattr(layer, "__webui_hypertile_params", mark)
        assert torch.equal(host.draw(MERGE, steps=3), host.draw(steps=3))
        assert "computes this layer itself" in str(host.said[-1].summary.details)
        for _, mark in marks:
            mark.enabled = False
        assert torch.equal(host.draw(MERGE, steps=3), alone)


def unipc(model, x, timesteps=None, extra_args=None, callback=None, disable=None, sigmas=None):
    import comfy.k_diffusion.sampling

    return comfy.k_diffusion.sampling.sample_euler(model, x, sigmas, extra_args, callback, disable)


def test_samplers_with_their_own_noise_levels_are_left_alone(host):
    plain, found = host.draw(sampler=unipc), host.draw(LOOSE | MERGE, sampler=unipc)
    assert not torch.equal(plain, found)  # Apply ToMe serves them
    why = "the sampler UniPC chooses its noise levels itself"
    assert host.lines[1] == f"Paceline Reuse Steps: nothing was reused: {why}"
    assert host.said[1].summary.details == (why,)
    assert torch.equal(host.draw(LOOSE, sampler=unipc), plain)


def test_another_extension_that_leaves_out_steps_goes_first(host, studio):
    network = studio.model.model.diffusion_model
    forward = network.forward

    def teacache_forward(*args, **options):
        return forward(*args, **options)

    network.forward = teacache_forward
    try:
        plain = host.draw()
        assert torch.equal(host.draw(LOOSE), plain)
        assert "another extension skips steps too" in host.lines[0]
    finally:
        del network.forward


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


@pytest.mark.parametrize("cfg", often([3.0], [1.0, 3.0]))
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
