"""Reuse Steps on the schedules of ComfyUI's newest templates, through the nodes that these use."""

from __future__ import annotations

import pytest
from comfy_host import transformers
from reusing import reuse, technique


def streams(latent):
    return latent.unbind() if latent.is_nested else [latent]


def draw(model, name, sampler, steps, guidance, sigmas=None):
    """Sample as SamplerCustomAdvanced does with noise levels that were typed in; without guidance, by BasicGuider."""
    from comfy_extras import nodes_custom_sampler as nodes

    positive, negative = (transformers.conditioning(name, seed=seed) for seed in (1, 2))
    if sigmas is None:
        levels = nodes.BasicScheduler.execute(model, "simple", steps, 1.0)[0].tolist()
        sigmas = nodes.ManualSigmas.execute(", ".join(f"{level:.6f}" for level in levels))[0]
    guider = (
        nodes.BasicGuider.execute(model, positive)
        if guidance is None
        else nodes.CFGGuider.execute(model, positive, negative, guidance)
    )
    noise, solver = nodes.RandomNoise.execute(5)[0], nodes.KSamplerSelect.execute(sampler)[0]
    latent = {"samples": transformers.latent(name)}
    return streams(nodes.SamplerCustomAdvanced.execute(noise, guider[0], solver, sigmas, latent)[0]["samples"])


@pytest.mark.parametrize(
    ("name", "sampler", "steps", "guidance"),
    [
        ("flux2", "er_sde", 15, 1.0),
        ("flux2", "er_sde", 25, 2.5),
        ("minimax_h3", "res_multistep", 20, None),
        ("qwen_image21", "euler", 25, 1.0),
    ],
)
def test_steps_are_left_out_near_the_budget_and_counted(studio, name, sampler, steps, guidance):
    model = transformers.build(name)
    plain = draw(model, name, sampler, steps, guidance)
    faster = reuse(studio, model, budget=1.0)
    drawn = draw(faster, name, sampler, steps, guidance)
    counts = technique(faster).last_summary().counts
    assert counts["evaluations"] == steps and counts["forecast"] >= 4
    for found, whole in zip(drawn, plain, strict=True):
        assert 0 < (found - whole).norm() < 0.2 * whole.norm()


FEW = [("euler", steps, "simple") for steps in (4, 6, 8, 12)]
FEW += [(sampler, 8, "simple") for sampler in ("res_multistep", "dpmpp_2m", "er_sde", "lcm", "uni_pc", "dpmpp_sde")]
FEW += [("euler", 8, "sgm_uniform"), ("dpmpp_2m", 8, "karras"), ("res_multistep", 6, "beta")]
KNOWN = ("euler", "dpmpp_2m", "res_multistep")


def left_out(studio, model, name, sampler, sigmas):
    """Return how many of the levels were left out, and what was said; the sampler's latents must be near each other."""
    plain = draw(model, name, sampler, None, None, sigmas)
    faster = reuse(studio, model, budget=1.0)
    drawn = draw(faster, name, sampler, None, None, sigmas)
    found = technique(faster).last_summary()
    for one, whole in zip(drawn, plain, strict=True):
        assert (one - whole).norm() < 0.3 * whole.norm()
        assert ((one - whole).norm() > 0) == (found.counts.get("forecast", 0) > 0)
    return found.counts.get("forecast", 0), str(found.details)


@pytest.mark.parametrize(("sampler", "steps", "scheduler"), FEW)
def test_of_few_steps_late_ones_are_left_out_where_the_sampler_allows_it(studio, sampler, steps, scheduler):
    from comfy_extras import nodes_custom_sampler as nodes

    model = transformers.build("flux2")
    sigmas = nodes.BasicScheduler.execute(model, scheduler, steps, 1.0)[0]
    count, said = left_out(studio, model, "flux2", sampler, sigmas)
    assert count == ((1 if steps < 8 else 2 if steps < 12 else 3) if sampler in KNOWN else 0), said
    assert ("add no noise (euler" in said) == (sampler not in KNOWN)
