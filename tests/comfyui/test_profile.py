"""Profile in a real ComfyUI: the numbers are those of this run."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest
import torch
from comparing import Emoji
from paceline.service.comfyui.profiling import SLICES, profile_job
from paceline.service.comfyui.sampling_job import SamplingJob


@pytest.fixture(scope="module")
def inputs(emoji: Emoji) -> dict[str, Any]:
    return {"model": emoji.model, **emoji.sampling(steps=3)}


def run(studio: Any, inputs: dict[str, Any]) -> tuple[dict[str, Any], str]:
    with torch.inference_mode():
        result = studio.nodes["PacelineProfile"].execute(**inputs)
    summary, text = result.result
    found = json.loads(text)
    assert [{**shown, "step": found["step"]} for shown in result.ui["paceline_profile"]] == [found]
    return found, summary


@pytest.fixture(scope="module")
def plain(studio, inputs) -> tuple[dict[str, Any], str]:
    """The profile of the plain model, which is loaded already, and its summary."""
    import comfy.model_management

    comfy.model_management.load_models_gpu([inputs["model"]])
    return run(studio, inputs)


def test_the_parts_of_a_step_add_up_to_it(plain):
    found, summary = plain
    assert found["weights"] == []
    assert len(found["steps"]) == 3 and found["step"] == statistics.median(found["steps"][1:])
    assert set(found["slices"]) == set(SLICES)
    assert sum(found["slices"].values()) == pytest.approx(found["step"])
    assert found["slices"]["attention"] > 0 and found["slices"]["convolution"] > 0 and found["slices"]["linear"] > 0
    assert summary.startswith("one step ") and "3 steps" in summary


def test_cancelling_before_the_profiled_step_is_no_other_error(studio, inputs):
    from comfy.model_management import InterruptProcessingException, interrupt_current_processing

    def say(text: str) -> None:
        if "profiler" in text:
            interrupt_current_processing()

    job = SamplingJob(**{name: value for name, value in inputs.items() if name != "model"})
    with torch.inference_mode(), pytest.raises(InterruptProcessingException):
        profile_job(inputs["model"], None, job, say)
    assert not torch.autograd._profiler_enabled()
