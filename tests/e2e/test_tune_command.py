"""The command that makes a workflow faster: a real ComfyUI looks, measures, and runs what was written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from comfy_host.cached import generated
from comfy_host.paths import ROOT
from executing import node
from faster_prompts import plain
from paceline.service.faster.tune import main

pytestmark = pytest.mark.slow


def run(*ours: str) -> subprocess.CompletedProcess[str]:
    """Run ``tune`` as a user types it."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # the tests' import path
    return subprocess.run([sys.executable, str(ROOT), "tune", *ours], capture_output=True, text=True, env=own)


def saved(folder: Path, checkpoint: Path, steps: int = 2) -> Path:
    prompt = plain(checkpoint, steps=steps)
    path = folder / "fox.json"
    path.write_text(json.dumps(prompt))
    return path


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_it_writes_a_faster_workflow_that_runs(tmp_path, server, client, capsys):
    checkpoint = generated("sd15_smallest")
    server.add_model("checkpoints", checkpoint)
    path = saved(tmp_path, checkpoint, steps=12)
    ours = ("--choice", "fast", "--prove", "--server", server.base_url)
    done = run(str(path), *ours)
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout
    for line in (
        "Nothing was measured here yet",
        "This run took ",
        "trying candidates",
        ": expected 1.",
        "Measured, steps",
    ):
        assert line in said
    written = tmp_path / "fox_faster.json"
    assert str(written) in said
    faster = read(written)
    assert "PacelineReuseSteps" in {node["class_type"] for node in faster.values()}
    assert client.run(faster).outputs["7"]["images"]
    assert main([str(path), "--choice", "fast", "--server", server.base_url]) == 0
    again = capsys.readouterr().out
    assert again.startswith("The last picture took ") and "Nothing was measured here yet" not in again
    assert "\n  KSampler: " in again and "Reuse Steps is offered. (" in again


def test_it_writes_nothing_where_nothing_is_left_to_try(tmp_path, sd15_checkpoint, server, capsys):
    prompt = plain(sd15_checkpoint, steps=2)
    prompt["2"] = node("PacelineOptimizePreset", model=["1", 0], vae=["1", 2], preset="fast")
    prompt["5"]["inputs"]["model"], prompt["6"]["inputs"]["vae"] = ["2", 0], ["2", 1]
    path = tmp_path / "preset.json"
    path.write_text(json.dumps(prompt))
    assert main([str(path), "--server", server.base_url]) == 0
    said = capsys.readouterr().out
    assert "Nothing is left to try" in said and "nothing was written" in said
    assert not list(tmp_path.glob("*_faster.json"))


def test_a_mistake_is_one_sentence(tmp_path, sd15_checkpoint, capsys):
    """Other sentences: ``tests/unit/test_tune_reading.py``."""
    path = str(saved(tmp_path, sd15_checkpoint))
    assert main([path, "--server", "http://127.0.0.1:9"]) == 2
    assert "No ComfyUI answers at" in capsys.readouterr().err
