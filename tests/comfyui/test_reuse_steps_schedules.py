"""Reuse Steps on the schedules of ComfyUI's newest templates, through the nodes that these use."""

from __future__ import annotations

import pytest
from comfy_host import transformers
from reusing import reuse, technique


def streams(latent):
    return latent.unbind() if latent.is_nested else [latent]


def draw(model, name, sampler, steps, guidance):
    """Sample as SamplerCustomAdvanced does with noise levels that were typed in; without guidance, by BasicGuider."""
    from comfy_extras import nodes_custom_sampler as nodes

    positive, negative = (transformers.conditioning(name, seed=seed) for seed in (1, 2))
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
