"""The GPU run, rehearsed: every stage starts, ends and is saved, and a kill loses no row that was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile

import pytest
from comfy_host.paths import ROOT

pytestmark = pytest.mark.slow
SCRIPT = ["bash", str(ROOT / "benchmarks" / "on_gpu.sh")]
COLLECT = [sys.executable, str(ROOT / "benchmarks" / "gpu" / "collect.py")]


def environment(out, **more):
    work = {"PYTHON": sys.executable, "PACELINE_GPU_PACK": "none", "PACELINE_GPU_WORK": str(out / "work")}
    return {**os.environ, **work, **more}


def run(out, *arguments, **more):
    return subprocess.run(
        [*SCRIPT, "--out", str(out / "out"), *arguments], env=environment(out, **more), capture_output=True, text=True,
    )  # fmt: skip


def ended(out):
    lines = (out / "out" / "stages.tsv").read_text().splitlines()
    return [line.split("\t")[:2] for line in lines]


def test_a_rehearsal_names_each_stage_that_it_leaves_out(tmp_path):
    def names(*arguments):
        lines = run(tmp_path, "--list", *arguments).stdout.splitlines()
        return {line.removeprefix("-- ").split(":")[0] for line in lines if ":" in line}

    assert names() == names("--rehearse")
    assert "-- vae_h3: not rehearsed, its weights take 10 GB" in run(tmp_path, "--list", "--rehearse").stdout


@pytest.mark.thorough
def test_every_stage_runs_and_is_saved(tmp_path):
    done = run(tmp_path, "--rehearse", "--seconds", "1500")
    assert done.returncode == 0, done.stdout[-4000:]
    assert {status for _, status in ended(tmp_path)} == {"0"}
    with tarfile.open(tmp_path / "out" / "logs.tar.gz") as archive:
        names = archive.getnames()
    assert [name for name, _ in ended(tmp_path) if f"logs/{name}.log" not in names] == []
    kept = str(tmp_path / "out" / "kept.jsonl")
    subprocess.run([*COLLECT, kept, "--out", str(tmp_path / "results")], check=True)
    content = json.loads((tmp_path / "results" / "gpu_recipe_sdxl.json").read_text())
    assert {"hardware", "versions", "commit", "command", "date", "baseline", "rows"} <= set(content)
    rows = {row["name"]: row for row in content["rows"]}
    assert {"ComfyUI as it comes", "ComfyUI's TorchCompileModel", "+ Compile UNet and VAE"} <= set(rows)
    assert all(0 < row["roof_share"] < 10 for row in rows.values())
    # eager compiles nothing, so these compute what the first one does.
    assert rows["+ Compile UNet and VAE"]["quality"]["relative_error"] < 1e-4


def test_one_command_goes_on_until_nothing_is_left_and_names_the_file_to_send(tmp_path):
    short = tmp_path / "python"
    short.write_text(f"#!/bin/sh\n[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; exit 75; }}\n")
    short.chmod(0o755)
    only = ("--only", "about,attention_backends")
    done = run(tmp_path, "--rehearse", *only, "--seconds", "10", PYTHON=str(short))  # too little for any stage
    assert "2 stages are left" in done.stdout and not (tmp_path / "once").exists()
    done = run(tmp_path, "--all", "--rehearse", *only, PYTHON=str(short))
    assert ended(tmp_path) == [["about", "75"], ["attention_backends", "0"], ["about", "0"]]
    assert done.stdout.splitlines()[-1] == f"Done. Please attach this file to an issue: {tmp_path}/out/kept.jsonl"
