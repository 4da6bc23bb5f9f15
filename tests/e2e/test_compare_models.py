"""Compare Models and Optimize (Preset) through the HTTP interface of a real server, on a trained model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from comfy_host.client import ComfyClient, PromptFailed
from comfy_host.listener import Event

pytestmark = pytest.mark.slow

SAMPLER = {"seed": 42, "cfg": 2.0, "sampler_name": "dpmpp_2m", "scheduler": "karras", "denoise": 1.0}
MEASURED = {"runs": 2, "warmup_runs": 1, "fp32_reference": False, "fewer_steps": False}
TOME = {
    "preset": "custom", "method": "merge", "ratio": 0.1, "max_downsample": "auto", "sx": 2, "sy": 2, "use_rand": True,
    "seed": 0, "merge_attn": True, "merge_crossattn": False, "merge_mlp": False, "start_percent": 0.0,
    "end_percent": 1.0, "level_decay": 1.0,
}  # fmt: skip


def emoji_prompt(steps: int, prefix: str) -> dict:
    return {
        "model": {"class_type": "IconModelLoader", "inputs": {"weights": "emoji32.safetensors"}},
        "positive": {"class_type": "IconTextEncode", "inputs": {"text_encoder": ["model", 1], "text": "red apple"}},
        "negative": {"class_type": "IconTextEncode", "inputs": {"text_encoder": ["model", 1], "text": ""}},
        "latent": {"class_type": "IconEmptyLatent", "inputs": {"width": 32, "height": 32, "batch_size": 1}},
        "tome": {"class_type": "PacelineApplyToMe", "inputs": {"model": ["model", 0], **TOME}},
        "compare": {
            "class_type": "PacelineCompareModels",
            "inputs": {
                "model_baseline": ["model", 0], "model_optimized": ["tome", 0], "positive": ["positive", 0],
                "negative": ["negative", 0], "latent_image": ["latent", 0], "steps": steps,
                "filename_prefix": prefix, **SAMPLER, **MEASURED,
            },
        },
        "save": {"class_type": "SaveImage", "inputs": {"images": ["compare", 0], "filename_prefix": "sheet"}},
    }  # fmt: skip


def test_a_comparison_of_a_trained_model(client, server):
    result = client.run(emoji_prompt(8, "e2e/emoji"))
    shown = result.outputs["compare"]["paceline_comparison"][0]
    saved = json.loads((server.output_dir / "e2e" / "emoji_00001_comparison.json").read_text())
    assert shown["verdict"] == saved["verdict"] == result.texts["compare"][0].splitlines()[0]
    assert 0 < saved["seed_share"] < 0.5
    assert saved["activity"]["Apply ToMe"]["text"].startswith("active in 3 of 10 self-attention blocks")
    assert saved["surroundings"]["comfyui"] == client.get("/system_stats")["system"]["comfyui_version"]
    # The picture in the node is the saved one, and the one that the output hands on.
    picture = np.asarray(result.images["compare"][0].convert("RGB"))
    assert np.array_equal(picture, np.asarray(result.images["save"][0].convert("RGB")))
    assert result.images["compare"][0].text["prompt"], "dropping the picture on the canvas opens the workflow"
    shares = [event["value"] / event["max"] for event in result.of_type("progress") if event["node"] == "compare"]
    assert shares == sorted(shares) and shares[-1] == 1
    told = [event["headline"] for event in result.of_type("paceline.activity") if event["node"] == "compare"]
    assert "round 2 of 2: optimized" in told
    assert saved["verdict"].startswith(told[-1]) and ";" not in told[-1]


class Cancel:
    """Told of each message of a run, it stops the run once, when one of our nodes says something that begins so."""

    def __init__(self, client: ComfyClient, headline: str) -> None:
        self.client, self.headline, self.done = client, headline, False

    def __call__(self, event: Event) -> None:
        """Look at a message."""
        said = event.data.get("headline", "") if event.type == "paceline.activity" else ""
        if said.startswith(self.headline) and not self.done:
            self.done = True
            self.client.interrupt()


def test_it_can_be_cancelled_and_run_again(client):
    prompt = emoji_prompt(12, "e2e/cancelled")
    with pytest.raises(PromptFailed) as stopped:
        client.run(prompt, on_event=Cancel(client, "round 1 of 2"))
    assert stopped.value.node_id == "compare"
    assert "execution_interrupted" in stopped.value.exception_type or "Interrupt" in stopped.value.exception_type
    prompt["compare"]["inputs"] |= {"steps": 2, "runs": 1, "warmup_runs": 0}
    assert client.run(prompt).outputs["compare"]["paceline_comparison"]


def test_a_preset_runs_in_a_workflow(client, server):
    presets = server.base_directory / "user" / "__paceline" / "presets"
    presets.mkdir(parents=True, exist_ok=True)
    steps = [{"node": "PacelineApplyToMe", "inputs": {"preset": "custom", "method": "merge", "ratio": 0.5}},
             {"node": "PacelineSetAttentionProcessor", "inputs": {"backend": "sdpa_math"}}]  # fmt: skip
    (presets / "tuned.json").write_text(json.dumps({"paceline_recipe": 1, "name": "tuned", "steps": steps}))
    options = client.object_info("PacelineOptimizePreset")["PacelineOptimizePreset"]["input"]["required"]["preset"]
    assert "tuned" in json.dumps(options)
    workflow = {name: entry for name, entry in emoji_prompt(2, "").items() if name not in ("tome", "compare", "save")}
    workflow["preset"] = {"class_type": "PacelineOptimizePreset", "inputs": {"model": ["model", 0], "preset": "tuned"}}
    workflow["sampler"] = {
        "class_type": "KSampler",
        "inputs": {
            "model": ["preset", 0], "positive": ["positive", 0], "negative": ["negative", 0],
            "latent_image": ["latent", 0], "steps": 2, **SAMPLER,
        },
    }  # fmt: skip
    workflow["decode"] = {"class_type": "IconDecode", "inputs": {"samples": ["sampler", 0], "scale": 8}}
    workflow["show"] = {"class_type": "PreviewImage", "inputs": {"images": ["decode", 0]}}
    workflow["report"] = {"class_type": "PreviewAny", "inputs": {"source": ["preset", 2]}}
    result = client.run(workflow)
    assert result.texts["report"][0].startswith("tuned: 2 of 2 steps applied.")
    assert result.outputs["preset"]["paceline_steps"] == steps
    told = [event for event in result.of_type("paceline.activity") if event["node"] == "preset"]
    assert told[-1]["state"] == "active"
    assert told[-1]["headline"] == "2 of 2 active: Set Attention Processor, Apply ToMe"
