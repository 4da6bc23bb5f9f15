"""Benchmark Sweep and Optimize (Preset) on a real server: measured, cancelled, resumed, and the preset used."""

from __future__ import annotations

import json

import numpy as np
import pytest
from comfy_host.client import PromptFailed
from e2e.cancelling import Cancel

pytestmark = pytest.mark.slow

GRID = "ApplyToMe.preset: quality, balanced, fast\nsize: 256\nbatch: 1, 2"


def prompt(study: str, grid: str = GRID, steps: int = 2) -> dict:
    return {
        "model": {"class_type": "IconModelLoader", "inputs": {"weights": "emoji32.safetensors"}},
        "positive": {"class_type": "IconTextEncode", "inputs": {"text_encoder": ["model", 1], "text": "red apple"}},
        "negative": {"class_type": "IconTextEncode", "inputs": {"text_encoder": ["model", 1], "text": ""}},
        "latent": {"class_type": "IconEmptyLatent", "inputs": {"width": 32, "height": 32, "batch_size": 1}},
        "sweep": {
            "class_type": "PacelineBenchmarkSweep",
            "inputs": {
                "model": ["model", 0], "positive": ["positive", 0], "negative": ["negative", 0],
                "latent_image": ["latent", 0], "grid": grid, "search": "grid", "trials": 1, "study": study,
                "largest_difference": 10.0, "seed": 42, "steps": steps, "cfg": 2.0, "sampler_name": "dpmpp_2m",
                "scheduler": "karras", "denoise": 1.0, "runs": 2, "warmup_runs": 0, "storage": "",
                "filename_prefix": f"e2e/{study}",
            },
        },
        "save": {"class_type": "SaveImage", "inputs": {"images": ["sweep", 0], "filename_prefix": "plot"}},
    }  # fmt: skip


@pytest.mark.thorough
def test_a_sweep_is_cancelled_goes_on_and_shows_what_it_found(client, server):
    first = prompt("resumed", steps=40)
    with pytest.raises(PromptFailed) as stopped:
        client.run(first, on_event=Cancel(client, "cell 2 of 6"))
    assert stopped.value.node_id == "sweep"
    result = client.run(prompt("whole"))
    content = json.loads((server.output_dir / "e2e" / "whole_00001_.json").read_text())
    assert [entry["state"] for entry in content["results"]] == ["measured"] * 6
    assert content["measured_now"] == 6
    assert np.array_equal(
        np.asarray(result.images["sweep"][0].convert("RGB")), np.asarray(result.images["save"][0].convert("RGB"))
    )
    assert result.images["sweep"][0].text["prompt"], "dropping the plot on the canvas opens the workflow"
    shares = [event["value"] / event["max"] for event in result.of_type("progress") if event["node"] == "sweep"]
    assert shares == sorted(shares) and shares[-1] == 1
    told = [event for event in result.of_type("paceline.activity") if event["node"] == "sweep"]
    begun = [event["headline"] for event in told if event["state"] == "working"]
    assert any(text.startswith("cell 3 of 6: preset balanced, size 256, batch 1: round 2 of 2") for text in begun)
    assert told[-1]["counts"] == {"cells": 6, "measured": 6}
    assert told[-1]["details"][0].startswith("6 of 6 cells: 6 measured.")
    assert (told[-1]["state"] == "active") == (content["preset"] is not None)
    # The same study again, under other ids: nothing is measured.
    again = {f"x{name}": entry for name, entry in json.loads(json.dumps(prompt("whole"))).items()}
    for entry in again.values():
        for name, value in entry["inputs"].items():
            if isinstance(value, list):
                entry["inputs"][name] = [f"x{value[0]}", value[1]]
    again["xsweep"]["inputs"]["filename_prefix"] = "e2e/again"
    client.run(again)
    assert json.loads((server.output_dir / "e2e" / "again_00001_.json").read_text())["measured_now"] == 0


def test_a_preset_runs_in_a_workflow(client, server):
    presets = server.base_directory / "user" / "__paceline" / "presets"
    presets.mkdir(parents=True, exist_ok=True)
    steps = [{"node": "PacelineApplyToMe", "inputs": {"preset": "custom", "method": "merge", "ratio": 0.5}},
             {"node": "PacelineSetAttentionProcessor", "inputs": {"backend": "sdpa_math"}}]  # fmt: skip
    (presets / "tuned.json").write_text(json.dumps({"paceline_recipe": 1, "name": "tuned", "steps": steps}))
    options = client.object_info("PacelineOptimizePreset")["PacelineOptimizePreset"]["input"]["required"]["preset"]
    assert "tuned" in json.dumps(options)
    workflow = {name: entry for name, entry in prompt("x").items() if name not in ("sweep", "save")}
    workflow["preset"] = {"class_type": "PacelineOptimizePreset", "inputs": {"model": ["model", 0], "preset": "tuned"}}
    workflow["sampler"] = {
        "class_type": "KSampler",
        "inputs": {
            "model": ["preset", 0], "positive": ["positive", 0], "negative": ["negative", 0],
            "latent_image": ["latent", 0], "seed": 1, "steps": 2, "cfg": 2.0, "sampler_name": "euler",
            "scheduler": "normal", "denoise": 1.0,
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
