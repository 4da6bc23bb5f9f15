"""Compare Models through the HTTP interface of a real server, on a trained model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from executing import node
from trust.prompts import merging

pytestmark = pytest.mark.slow

SAMPLER = {"seed": 42, "cfg": 2.0, "sampler_name": "dpmpp_2m", "scheduler": "karras", "denoise": 1.0}
MEASURED = {"runs": 2, "fewer_steps": False}


def emoji_prompt(steps: int) -> dict:
    compared = {"model_baseline": ["model", 0], "model_optimized": ["tome", 0], "latent_image": ["latent", 0]}
    prompts = {"positive": ["positive", 0], "negative": ["negative", 0]}
    drawn = {"steps": steps, **SAMPLER, **MEASURED}
    return {
        "model": node("IconModelLoader", weights="emoji32.safetensors"),
        "positive": node("IconTextEncode", text_encoder=["model", 1], text="red apple"),
        "negative": node("IconTextEncode", text_encoder=["model", 1], text=""),
        "latent": node("IconEmptyLatent", width=32, height=32, batch_size=1),
        "tome": node("PacelineApplyToMe", model=["model", 0], **merging(ratio=0.1)),
        "compare": node("PacelineCompareModels", **compared, **prompts, **drawn),
        "save": node("SaveImage", images=["compare", 0], filename_prefix="sheet"),
    }


def test_a_comparison_of_a_trained_model(client, server):
    result = client.run(emoji_prompt(8))
    shown = result.outputs["compare"]["paceline_comparison"][0]
    saved = json.loads(max((server.output_dir / "paceline").glob("compare_*_comparison.json")).read_text())
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
