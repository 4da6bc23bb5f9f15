"""Compare Models through the HTTP interface of a real server, on a trained model and on a checkpoint with a VAE."""

from __future__ import annotations

import json

import numpy as np
import pytest
from comfy_host.client import PromptFailed
from e2e.cancelling import Cancel

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


def test_a_checkpoint_with_its_vae(client, server, sd15_checkpoint):
    prompt = emoji_prompt(2, "e2e/sd15")
    prompt["model"] = {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": sd15_checkpoint.name}}
    for name, text in (("positive", "a lighthouse"), ("negative", "blurry")):
        prompt[name] = {"class_type": "CLIPTextEncode", "inputs": {"clip": ["model", 1], "text": text}}
    size = {"width": 128, "height": 64, "batch_size": 2}
    prompt["latent"] = {"class_type": "EmptyLatentImage", "inputs": size}
    prompt["compare"]["inputs"] |= {"vae": ["model", 2], "runs": 1, "warmup_runs": 0}
    result = client.run(prompt)
    saved = json.loads((server.output_dir / "e2e" / "sd15_00001_comparison.json").read_text())
    assert saved["pictures"] == "decoded by the VAE"
    assert saved["state"] in ("unknown", "suspicious")
    assert len(saved["files"]["baseline"]) == 2
    assert result.images["compare"][0].height > 2 * 128


def test_it_can_be_cancelled_and_run_again(client):
    prompt = emoji_prompt(12, "e2e/cancelled")
    with pytest.raises(PromptFailed) as stopped:
        client.run(prompt, on_event=Cancel(client, "round 1 of 2"))
    assert stopped.value.node_id == "compare"
    assert "execution_interrupted" in stopped.value.exception_type or "Interrupt" in stopped.value.exception_type
    prompt["compare"]["inputs"] |= {"steps": 2, "runs": 1, "warmup_runs": 0}
    assert client.run(prompt).outputs["compare"]["paceline_comparison"]
