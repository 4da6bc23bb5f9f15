"""The command that makes a workflow faster: a real ComfyUI decides, measures, and runs what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import run
from faster import PROMPT
from paceline.workbench.comfyui.prompt import defaults_of

pytestmark = pytest.mark.slow


def saved(folder: Path, checkpoint: Path, steps: int = 2) -> Path:
    prompt = json.loads(json.dumps(PROMPT))
    prompt["1"]["inputs"]["ckpt_name"] = checkpoint.name
    prompt["5"]["inputs"]["steps"] = steps
    path = folder / "fox.json"
    path.write_text(json.dumps(prompt))
    return path


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_it_writes_a_faster_workflow_that_runs_and_says_that_nothing_was_measured(
    tmp_path, sd15_checkpoint, server, client
):
    path = saved(tmp_path, sd15_checkpoint, steps=9)  # with 8 nothing becomes Reuse Steps
    done = run(tmp_path, sd15_checkpoint, "tune", str(path), "--server", server.base_url)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "inserted Apply ToMe (preset quality), for KSampler" in done.stdout
    assert "converted to Reuse Steps, for KSampler" in done.stdout
    assert "Nothing was measured" in done.stdout
    written = tmp_path / "fox_faster.json"
    assert str(written) in done.stdout
    faster = read(written)
    types = {node["class_type"] for node in faster.values()}
    assert {"PacelineApplyToMe", "PacelineSetAttentionProcessor", "PacelineReuseSteps"} <= types
    assert "EasyCache" not in types
    (saved_picture,) = client.run(faster).outputs["7"]["images"]
    picture = server.base_directory / "output" / saved_picture["subfolder"] / saved_picture["filename"]
    again = run(tmp_path, sd15_checkpoint, "tune", str(picture))  # the workflow is in it; in a ComfyUI of its own
    assert "there already" in again.stdout and again.returncode == 0


def test_what_is_not_faster_here_is_left_out(tmp_path, sd15_checkpoint, server):
    path = saved(tmp_path, sd15_checkpoint)
    output = tmp_path / "out.json"
    ours = ("--choice", "lossless", "--measure", "-o", str(output), "--server", server.base_url)
    done = run(tmp_path, sd15_checkpoint, "tune", str(path), *ours)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "measuring Set Attention Processor (backend auto), for KSampler" in done.stdout
    kept = "\nkept Set Attention Processor" in done.stdout
    assert kept or "\nleft out Set Attention Processor" in done.stdout
    if kept:
        assert "PacelineSetAttentionProcessor" in {node["class_type"] for node in read(output).values()}
    else:
        assert "Nothing was changed" in done.stdout and not output.exists()


@pytest.mark.thorough
def test_fewer_steps_are_found_where_they_draw_the_picture(tmp_path, sd15_checkpoint, server, client):
    # Random weights change a latent so little that fewer steps end where all of them do. The nodes that would be
    # timed are there already.
    path = saved(tmp_path, sd15_checkpoint, steps=10)
    prompt = read(path)
    prompt["2"] = {"class_type": "PacelineSetAttentionProcessor", "inputs": {"model": ["1", 0], "backend": "auto"}}
    defaults = defaults_of(client.object_info()["PacelineApplyToMe"]["input"])
    prompt["8"] = {"class_type": "PacelineApplyToMe", "inputs": {**defaults, "model": ["2", 0]}}
    prompt["5"]["inputs"]["model"] = ["8", 0]
    path.write_text(json.dumps(prompt))
    ours = ("--choice", "fast", "--measure", "--pictures", "14", "--server", server.base_url)
    done = run(tmp_path, sd15_checkpoint, "tune", str(path), *ours)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "trying other settings, for KSampler: at most the work of 14 pictures" in done.stdout
    assert "measuring Reuse Steps" not in done.stdout  # whose budget the search tries
    faster = read(tmp_path / "fox_faster.json")
    steps = next(node for node in faster.values() if node["class_type"] == "KSampler")["inputs"]["steps"]
    assert steps < 10 and f"changed KSampler: steps 10 -> {steps}" in done.stdout
    assert f"{steps} steps" in done.stdout and "less work, for KSampler" in done.stdout
    client.run(faster)


def test_a_mistake_is_one_sentence(tmp_path, sd15_checkpoint):
    """Other sentences: ``tests/unit/test_tune_reading.py``."""
    path = str(saved(tmp_path, sd15_checkpoint))
    done = run(tmp_path, sd15_checkpoint, "tune", path, "--server", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert "No ComfyUI answers at" in done.stderr and "Traceback" not in done.stderr
