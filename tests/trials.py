"""Workflows that the trial measures, and what it is asked."""

from __future__ import annotations

from typing import Any

from comfy_host import vaes
from executing import Executor

ONCE = {"runs": 1, "most_runs": 0}


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs}


def ours(kind: str, **inputs: Any) -> dict[str, Any]:
    """Return a node of ours with its defaults for what is not given."""
    from paceline.nodes import NODES

    settings = {put.id: put.default for put in NODES[kind].define_schema().inputs if hasattr(put, "default")}
    return node(kind, **settings | inputs)


def asked(prompt: dict[str, Any], chain: list[str], name: str = "model") -> dict[str, Any]:
    from paceline.server.trial import trial_payload

    return trial_payload({"prompt": prompt, "name": name, "chain": chain, "choice": "fast", "findings": []})


def measured(comfyui: Executor, prompt: dict[str, Any]) -> dict[str, Any]:
    """Return what the trial's first measurement finds, with one run of each side."""
    state = asked(prompt, ["tried"])
    assert state["why_not"] == ""
    state["prompt"]["paceline_trial"]["inputs"] |= ONCE
    return comfyui.run(state["prompt"])["paceline_trial"]["paceline_comparison"][0]


def base(comfyui: Executor, studio: Any) -> dict[str, Any]:
    """Models, conditionings, a latent, and a node of ours on the first model."""
    return {
        "model": comfyui.give("MODEL", "model", studio.model),
        "second": comfyui.give("MODEL", "second", studio.model),
        "positive": comfyui.give("CONDITIONING", "positive", studio.positive),
        "negative": comfyui.give("CONDITIONING", "negative", studio.negative),
        "vae": comfyui.give("VAE", "vae", vaes.taesd()),
        "latent": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "noise": node("RandomNoise", noise_seed=11),
        "euler": node("KSamplerSelect", sampler_name="euler"),
        "tried": ours("PacelineFuseQKV", model=["model", 0]),
        "guider": node("CFGGuider", model=["tried", 0], positive=["positive", 0], negative=["negative", 0], cfg=4.0),
        "sigmas": node("ManualSigmas", sigmas="10., 3., 1., 0."),
        "sampler": advanced("latent", "sigmas"),
        "decode": node("VAEDecode", samples=["sampler", 0], vae=["vae", 0]),
    }


def advanced(latent: str, sigmas: str, guider: str = "guider", noise: str = "noise", slot: int = 0) -> dict[str, Any]:
    links = {"noise": noise, "guider": guider, "sampler": "euler", "latent_image": latent}
    return node("SamplerCustomAdvanced", **{name: [id, 0] for name, id in links.items()}, sigmas=[sigmas, slot])
