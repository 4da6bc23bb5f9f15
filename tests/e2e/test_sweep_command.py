"""The command line of Benchmark Sweep: killed in the middle it goes on, and mistakes are one sentence."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from commands import command, environment

pytestmark = pytest.mark.slow

CELLS = ["quality", "balanced", "fast"]


def sweep(base: Path, checkpoint: Path, *more: str) -> list[str]:
    return command(base, checkpoint, "sweep", "--positive", "a fox",
                   "--set", f"ApplyToMe.preset: {', '.join(CELLS)}", "--set", "size: 64, 96", "--study", "fox",
                   "--no-vae", "--steps", "2", "--runs", "2", "--warmup-runs", "0", *more)  # fmt: skip


def start(base: Path, checkpoint: Path, *more: str) -> subprocess.Popen[str]:
    """Start it; what it says besides its results goes to a file, as a full pipe that nobody reads would stop it."""
    base.mkdir(exist_ok=True)
    with errors(base).open("w") as file:
        return subprocess.Popen(
            sweep(base, checkpoint, *more), stdout=subprocess.PIPE, stderr=file, text=True, env=environment()
        )


def errors(base: Path) -> Path:
    return base / "stderr.txt"


def finish(process: subprocess.Popen[str], base: Path) -> str:
    out, _ = process.communicate()
    assert process.returncode == 0, errors(base).read_text()[-3000:]
    return out


def saved(base: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((base / "output").rglob("*.json"))]


@pytest.mark.thorough
def test_killed_in_the_middle_it_goes_on_without_losing_or_repeating_a_cell(tmp_path, sd15_checkpoint):
    process = start(tmp_path, sd15_checkpoint)
    lines: list[str] = []
    while not any("cell 3 of 6" in line and "round" in line for line in lines):
        line = process.stdout.readline()
        assert line, errors(tmp_path).read_text()[-3000:]
        lines.append(line)
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()  # it may have come further before it was killed
    process.wait()
    process.stdout.close()
    assert saved(tmp_path) == []
    out = finish(start(tmp_path, sd15_checkpoint), tmp_path)
    (content,) = saved(tmp_path)
    finished = [line for line in lines if "cell" not in line and "preset" in line]
    assert len(finished) >= 2
    # A cell is finished a moment before it is said to be.
    assert 6 - content["measured_now"] in (len(finished), len(finished) + 1), "what was finished is not measured again"
    assert [entry["state"] for entry in content["results"]] == ["measured"] * 6
    for line in finished:  # the very result that the killed process found
        assert any(f"{entry['speedup']:.2f}x" in line for entry in content["results"])
    assert "6 of 6 cells: 6 measured" in out
    assert "| ApplyToMe.preset | size | speed-up |" in out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--set", "ApplyToMe.sx: 2, two"], "sets sx of Apply ToMe to 'two'. It is a whole number"),
        pytest.param(
            ["--checkpoint", "nothing.safetensors"],
            "There is no file 'nothing.safetensors' in checkpoints. There are: ",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, sd15_checkpoint, more, words):
    process = start(tmp_path, sd15_checkpoint, *more)
    process.communicate()
    err = errors(tmp_path).read_text()
    assert process.returncode == 2
    assert words in err and "Traceback" not in err
