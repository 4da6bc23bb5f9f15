"""The command line of Benchmark Sweep: what it says and saves, and mistakes are one sentence.

Killed in the middle it goes on: ``tests/unit/test_sweep_study.py``.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from commands import run

pytestmark = pytest.mark.slow


def sweep(base: Path, checkpoint: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run(base, checkpoint, "sweep", "--positive", "a fox", "--set", "ApplyToMe.preset: quality, fast",
               "--set", "size: 64, 96", "--study", "fox", "--no-vae", "--steps", "2", "--runs", "2",
               "--warmup-runs", "0", *more)  # fmt: skip


@pytest.mark.thorough
def test_each_cell_is_measured_said_and_saved(tmp_path, sd15_checkpoint):
    done = sweep(tmp_path, sd15_checkpoint)
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = (tmp_path / "output").rglob("*.json")
    results = json.loads(path.read_text())["results"]
    assert [entry["state"] for entry in results] == ["measured"] * 4
    finished = [line for line in done.stdout.splitlines() if "cell" not in line and "preset" in line]
    for entry in results:
        assert any(f"{entry['speedup']:.2f}x" in line for line in finished)
    assert "4 of 4 cells: 4 measured" in done.stdout
    assert "| ApplyToMe.preset | size | speed-up |" in done.stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--set", "ApplyToMe.sx: 2, two"], "sets sx of Apply ToMe to 'two'. It is a whole number"),
        pytest.param(
            ["--checkpoint", "nothing.safetensors"],
            "There is no file 'nothing.safetensors' in checkpoints. There are: ",
            marks=pytest.mark.thorough,
        ),
        pytest.param(["--checkpoint", __file__], f"{__file__} cannot be loaded: ", marks=pytest.mark.thorough),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, sd15_checkpoint, more, words):
    done = sweep(tmp_path, sd15_checkpoint, *more)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr
