"""A prompt with several sampling runs on one model, as upscale workflows and face detailers have: all are told of."""

from __future__ import annotations

import logging

import pytest
from paceline.optimizers.hosts.comfyui import stack


@pytest.fixture
def prompt(monkeypatch):
    """Names the prompt that is executed."""
    monkeypatch.setattr(stack, "running_prompt", lambda: "first")
    return lambda name: monkeypatch.setattr(stack, "running_prompt", lambda: name)


def technique_of(model, kind):
    return model.get_attachment("paceline").find(kind)


@pytest.mark.usefixtures("prompt")
def test_a_short_second_run_does_not_hide_what_the_first_left_out(studio, caplog):
    model = studio.run("PacelineReuseSteps", model=studio.model, budget=1.0)
    caplog.set_level(logging.INFO)
    first = studio.sample(model, steps=20)
    technique = technique_of(model, "step_reuse")
    alone = technique.last_summary()
    assert alone.counts["forecast"] > 0
    studio.sample(model, latent=first, steps=3)
    told = technique.last_summary()
    assert told.counts["forecast"] == alone.counts["forecast"] and told.state == alone.state
    assert told.headline.endswith(f"{alone.counts['forecast']} forecast, in 1 of 2 runs")
    assert told.details[0] == f"run 1: {alone.text}" and told.details[1].startswith("run 2: nothing was reused: ")
    report = studio.report(model)
    assert f"run 1: {alone.text}" in report and "2 runs took" in report
    lines = [record.getMessage() for record in caplog.records if "Reuse Steps" in record.getMessage()]
    assert len(lines) == 2 and alone.text in lines[0] and "in 1 of 2" not in lines[1]


def test_each_run_of_many_is_counted_and_a_new_prompt_begins_anew(studio, prompt):
    model = studio.attention(studio.tome(studio.model), "sdpa")
    for _ in range(3):
        studio.sample(model, steps=1)
    studio.sample(model, steps=1, size=(8, 8))
    merging = technique_of(model, "token_merging")
    told = merging.last_summary()
    assert told.counts["model_calls"] == 4
    assert any(line.startswith(("3 runs: active in", "4 runs: active in")) for line in told.details)
    prompt("second")  # the node's result was kept: it is the same MODEL
    studio.sample(model, steps=1)
    assert "runs" not in merging.last_summary().headline and merging.last_summary().counts["model_calls"] == 1
    assert "the run took" in studio.report(model)
