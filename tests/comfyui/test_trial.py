"""The trial measures workflows as they are: ComfyUI's executor runs what the server proposes, on real networks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from comfy_host import checkpoints, in_process, transformers, vaes
from sound_calls import AudioVAE
from trials import ONCE, advanced, asked, base, measured, node, ours


@pytest.fixture
def runs(monkeypatch):
    """What each run of the workflow's nodes gave: seed (0 is the workflow's own), latent, and seconds of a step."""
    from paceline.workbench.comfyui.workflow_job import WorkflowJob

    seen: list[Any] = []
    sample = WorkflowJob.sample

    def watched(self, model, seed, clock, on_step):
        seen.append((seed, sampled := sample(self, model, seed, clock, on_step)))
        return sampled

    monkeypatch.setattr(WorkflowJob, "sample", watched)
    return seen


def two_stages() -> dict[str, Any]:
    return {
        "bigger": node("LatentUpscaleBy", samples=["first", 0], upscale_method="bilinear", scale_by=1.5),
        "first": advanced("latent", "sigmas"),
        "again": node("ManualSigmas", sigmas="1.5, 0.5, 0."),
        "sampler": advanced("bigger", "again", noise="second_noise"),
        "second_noise": node("RandomNoise", noise_seed=12),
    }


def two_models(first: str, second: str) -> dict[str, Any]:
    """Wan 2.2: the first sigmas on one model, the others on another, which gets no noise."""

    def custom(model: str, latent: str, slot: int, noise: bool) -> dict[str, Any]:
        links = {"model": model, "positive": "positive", "negative": "negative", "sampler": "euler"}
        of = {name: [id, 0] for name, id in links.items()} | {"sigmas": ["split", slot], "latent_image": [latent, 0]}
        return node("SamplerCustom", **of, add_noise=noise, noise_seed=5, cfg=1.0)

    return {
        "split": node("SplitSigmas", sigmas=["sigmas", 0], step=1),
        "high": custom(first, "latent", 0, True),
        "sampler": custom(second, "high", 1, False),
    }


LINKS = {"model": ["tried", 0], "positive": ["positive", 0], "negative": ["negative", 0]}
WORKFLOWS = {
    "ManualSigmas": ({}, 3),
    "LTXVScheduler": (
        {"sigmas": node("LTXVScheduler", steps=3, max_shift=2.05, base_shift=0.95, stretch=True, terminal=0.1)}, 3,
    ),
    "Flux2Scheduler": ({"sigmas": node("Flux2Scheduler", steps=2, width=64, height=64)}, 2),
    "BasicGuider": ({"guider": node("BasicGuider", model=["tried", 0], conditioning=["positive", 0])}, 3),
    "DualCFGGuider": (
        {
            "guider": node(
                "DualCFGGuider", model=["tried", 0], cond1=["positive", 0], cond2=["negative", 0],
                negative=["negative", 0], cfg_conds=3.0, cfg_cond2_negative=2.0, style="regular",
            )
        },
        3,
    ),
    "a sampler with its own scheduler": (
        {
            "sampler": node(
                "KSampler", **LINKS, latent_image=["latent", 0], seed=3, steps=2, cfg=5.0, sampler_name="euler",
                scheduler="normal", denoise=1.0,
            )
        },
        2,
    ),
    "two stages": (two_stages(), 5),
    "the first of two models": (two_models("tried", "second"), 1),
    "the second of two models": (two_models("second", "tried"), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", WORKFLOWS)
def test_both_sides_draw_what_the_workflow_draws(comfyui, studio, runs, name):
    changes, steps = WORKFLOWS[name]
    prompt = base(comfyui, studio) | copy.deepcopy(changes)
    state = asked(prompt, ["tried"])
    assert state["why_not"] == "" and state["node"] == "tried"
    state["prompt"]["paceline_trial"]["inputs"] |= ONCE
    found = comfyui.run(state["prompt"])["paceline_trial"]["paceline_comparison"][0]
    drawn = comfyui.value(prompt, ["sampler", 0])["samples"]
    assert [seed for seed, _ in runs] == [20, 20, 0, 0]
    for seed, sampled in runs:
        assert torch.equal(sampled.latent, drawn) == (seed == 0)
    assert found["quality"] == "identical" and found["seed_share"] == 0.0
    assert found["about"]["steps"] == str(steps)
    assert (found["speedup_of"] == "step") == (steps > 1)
    assert found["lines"][0].startswith("one step:" if steps > 1 else "one sampling run:")


def test_each_round_draws_from_a_seed_of_its_own_also_where_it_comes_over_a_link(comfyui, studio, runs):
    prompt = base(comfyui, studio) | {"noise": node("RandomNoise", noise_seed=["number", 0])}
    prompt |= {"number": node("PrimitiveInt", value=11)}
    state = asked(prompt, ["tried"])
    state["prompt"]["paceline_trial"]["inputs"] |= {"runs": 2, "most_runs": 0, "warmup_runs": 0}
    found = comfyui.run(state["prompt"])["paceline_trial"]["paceline_comparison"][0]
    assert [seed for seed, _ in runs] == [20, 0, 0, 1, 1] and found["count"] == 2
    drawn = comfyui.value(prompt | {"number": node("PrimitiveInt", value=12)}, ["sampler", 0])["samples"]
    assert all(torch.equal(sampled.latent, drawn) == (seed == 1) for seed, sampled in runs)


def test_a_workflow_without_a_seed_is_measured_and_says_that_no_seed_changes_it(comfyui, studio, runs):
    prompt = base(comfyui, studio) | {"noise": node("DisableNoise")}
    state = asked(prompt, ["tried"])
    state["prompt"]["paceline_trial"]["inputs"] |= {"runs": 2, "most_runs": 0, "warmup_runs": 0}
    found = comfyui.run(state["prompt"])["paceline_trial"]["paceline_comparison"][0]
    assert found["seed_share"] is None or found["quality"] == "identical"
    assert all(torch.equal(sampled.latent, runs[0][1].latent) for _, sampled in runs)


def test_a_latent_of_video_and_sound_is_measured(comfyui, studio, runs):
    latent = transformers.latent("ltx2")
    text = transformers.conditioning("ltx2")
    prompt = base(comfyui, studio) | {
        "model": comfyui.give("MODEL", "ltx2", transformers.build("ltx2")),
        "positive": comfyui.give("CONDITIONING", "text", text),
        "negative": comfyui.give("CONDITIONING", "text", text),
        "latent": comfyui.give("LATENT", "latent", {"samples": latent}),
        "sigmas": node("ManualSigmas", sigmas="1., 0.5, 0."),
        "apart": node("LTXVSeparateAVLatent", av_latent=["sampler", 0]),
        "decode": node("VAEDecodeTiled", samples=["apart", 0], vae=["vae", 0], tile_size=64, overlap=0,
                       temporal_size=64, temporal_overlap=8),
        "vae": comfyui.give("VAE", "ltx", vaes.ltx()),
        "hear": node("LTXVAudioVAEDecode", samples=["apart", 1], audio_vae=["heard", 0]),
        "heard": comfyui.give("VAE", "sound", AudioVAE()),
    }  # fmt: skip
    found = measured(comfyui, prompt)
    assert sorted(found["sounds"]) == ["baseline", "optimized"]
    video = comfyui.value(prompt, ["apart", 0])["samples"]
    assert torch.equal(runs[-1][1].latent, video) and found["about"]["steps"] == "2"


def test_a_model_of_sound_alone_is_measured_by_what_is_heard(comfyui, studio, tmp_path, monkeypatch):
    import folder_paths

    monkeypatch.setattr(folder_paths, "temp_directory", str(tmp_path))
    text = [[torch.randn(1, 7, 48), {"conditioning_lyrics": torch.arange(5)[None]}]]
    prompt = base(comfyui, studio) | {
        "model": comfyui.give("MODEL", "ace", transformers.ace_step()),
        "positive": comfyui.give("CONDITIONING", "lyrics", text),
        "negative": comfyui.give("CONDITIONING", "lyrics", text),
        "tried": ours("PacelineReuseSteps", model=["model", 0]),
        "latent": node("EmptyAceStepLatentAudio", seconds=2.0, batch_size=1),
        "vae": comfyui.give("VAE", "ace", AudioVAE()),
        "decode": node("VAEDecodeAudio", samples=["sampler", 0], vae=["vae", 0]),
    }
    found = measured(comfyui, prompt)
    assert sorted(found["sounds"]) == ["baseline", "optimized"]
    assert any("sound" in line for line in found["lines"])


def test_a_vae_is_measured_by_its_decoding_and_encodes_without_what_is_tried(comfyui, studio, runs):
    prompt = base(comfyui, studio) | {
        "photo": node("EmptyImage", width=64, height=64, batch_size=1, color=200),
        "latent": node("VAEEncode", pixels=["photo", 0], vae=["tried", 0]),
        "tried": ours("PacelineVAEPrecision", vae=["vae", 0], dtype="bf16"),
        "decode": node("VAEDecode", samples=["sampler", 0], vae=["tried", 0]),
        "guider": node("BasicGuider", model=["model", 0], conditioning=["positive", 0]),
    }
    state = asked(prompt, ["tried"], "vae")
    assert state["why_not"] == ""
    state["prompt"]["paceline_trial"]["inputs"] |= ONCE
    found = comfyui.run(state["prompt"])["paceline_trial"]["paceline_comparison"][0]
    assert found["speedup_of"] == "decode" and [seed for seed, _ in runs] == [20, 0]
    plain = prompt | {"latent": node("VAEEncode", pixels=["photo", 0], vae=["vae", 0])}
    assert torch.equal(runs[1][1].latent, comfyui.value(plain, ["sampler", 0])["samples"])


def test_a_controlnet_is_measured_by_what_the_sampler_draws_with_it(comfyui, studio, runs):
    unet = checkpoints.smallest_unet()
    texts = {"positive": 1, "negative": 2}
    prompt = base(comfyui, studio) | {
        name: comfyui.give("CONDITIONING", f"small {name}", in_process.random_conditioning(unet, seed=seed))
        for name, seed in texts.items()
    }
    prompt |= {
        "model": comfyui.give("MODEL", "smallest", unet),
        "ours": ours("PacelineFuseQKV", model=["model", 0]),
        "control": comfyui.give("CONTROL_NET", "control", checkpoints.smallest_controlnet()),
        "tried": ours("PacelineCompileControlNet", control_net=["control", 0], backend="eager", mode="default"),
        "photo": node("EmptyImage", width=64, height=64, batch_size=1, color=200),
        "apply": node("ControlNetApplyAdvanced", control_net=["tried", 0], positive=["positive", 0], strength=1.0,
                      negative=["negative", 0], image=["photo", 0], start_percent=0.0, end_percent=1.0),
        "guider": node("CFGGuider", model=["ours", 0], positive=["apply", 0], negative=["apply", 1], cfg=4.0),
    }  # fmt: skip
    state = asked(prompt, ["tried"], "control_net")
    assert state["why_not"] == "" and "ours" not in state["prompt"]  # what is judged is nothing else of ours
    state["prompt"]["paceline_trial"]["inputs"] |= ONCE
    found = comfyui.run(state["prompt"])["paceline_trial"]["paceline_comparison"][0]
    assert "Compile ControlNet" in found["about"]["recipe"] and found["speedup_of"] == "sampling"
    prompt["apply"]["inputs"]["control_net"] = ["control", 0]
    assert torch.equal(runs[-2][1].latent, comfyui.value(prompt, ["sampler", 0])["samples"])
