"""The GPU run, rehearsed: every stage starts, ends and is saved, so that it cannot fail for a typing mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile

import pytest
from comfy_host.paths import ROOT

pytestmark = pytest.mark.slow


def run(out, *arguments, **environment):
    return subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "on_gpu.sh"), "--out", str(out), *arguments],
        env={**os.environ, "PYTHON": sys.executable, "PACELINE_GPU_PACK": "none", "PACELINE_GPU_WORK": str(out),
             **environment},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip


@pytest.mark.thorough
def test_every_stage_runs_and_is_saved(tmp_path):
    done = run(tmp_path, "--rehearse")
    stages = [line.split("\t") for line in (tmp_path / "results" / "stages.tsv").read_text().splitlines()]
    assert done.returncode == 0, done.stdout[-4000:]
    assert {status for _, status, _ in stages} == {"0"}
    with tarfile.open(tmp_path / "results.tar.gz") as archive:
        names = archive.getnames()
    assert [name for name, *_ in stages if f"results/{name}.log" not in names] == []
    content = json.loads((tmp_path / "results" / "sdxl_1024.json").read_text())
    rows = {row["name"]: row for row in content["rows"]}
    assert {"ComfyUI default", "ComfyUI TorchCompileModel", "Compile UNet"} <= set(rows)
    assert all(0 < row["roof_share"] < 10 for row in rows.values())
    # eager compiles nothing, so these compute what the first one does.
    assert rows["Compile UNet"]["quality"]["relative_error"] < 1e-4
    assert (tmp_path / "emoji64.part-aa").stat().st_size > 1e5


def test_the_real_run_and_its_rehearsal_have_the_same_kinds_of_stages(tmp_path):
    real, rehearsed = (
        {line.split(":")[0] for line in run(tmp_path, "--list", *more).stdout.splitlines()}
        for more in ((), ("--rehearse",))
    )
    assert rehearsed <= real
    assert real - rehearsed == {"sd15_512_batch4", "sd15_512_batch16", "token_reduction_sdxl"}


def test_a_stage_that_fails_costs_only_itself(tmp_path):
    done = run(tmp_path, "--rehearse", "--only", "about,attention_backends", PYTHON="false")
    assert done.returncode == 1
    stages = (tmp_path / "results" / "stages.tsv").read_text().splitlines()
    assert [line.split("\t")[:2] for line in stages] == [["about", "1"], ["attention_backends", "1"]]
