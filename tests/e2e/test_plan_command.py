"""The command that finds a plan for Reuse Steps, with a whole checkpoint in a ComfyUI with folders of its own."""

from __future__ import annotations

import subprocess

import pytest
from commands import command, environment
from paceline.optimizers.step_reuse.plan import Plan

pytestmark = pytest.mark.slow


def run(base, checkpoint, *more: str) -> subprocess.CompletedProcess[str]:
    ours = ["--prompt", "a fox", "--prompt", "a boat", "--steps", "8", "--size", "64", "--budget", "0.5",
            "--name", "fox", *more]  # fmt: skip
    return subprocess.run(command(base, checkpoint, "plan", *ours), capture_output=True, text=True, env=environment())


def test_a_plan_is_written_and_printed(tmp_path, sd15_checkpoint):
    done = run(tmp_path, sd15_checkpoint)
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = (tmp_path / "user").rglob("fox.json")
    plan = Plan.from_json(path.read_text())
    assert (plan.sampler, plan.scheduler, plan.steps, plan.guidance, plan.budget) == ("dpmpp_2m", "karras", 8, 7.0, 0.5)
    assert plan.to_json() in done.stdout and str(path) in done.stdout
    assert "of 8 evaluations of the network" in done.stdout


def test_mistakes_are_one_sentence(tmp_path, sd15_checkpoint):
    done = run(tmp_path, sd15_checkpoint, "--budget", "7")
    assert done.returncode == 2
    assert "budget is 7" in done.stderr and "Traceback" not in done.stderr
