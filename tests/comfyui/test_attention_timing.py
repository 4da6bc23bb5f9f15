"""Set Attention Processor ``auto`` in ComfyUI, where several exact kernels can run; the CPU's stand for a GPU's."""

from __future__ import annotations

import pytest
import torch
from distances import relative
from paceline.optimizers.attention import quickest


@pytest.fixture
def timed(monkeypatch, tmp_path):
    """Let ``auto`` time two kernels on the CPU; returns how often it did, and what it is to find."""
    from paceline.optimizers.hosts.comfyui import attention

    found = {"seconds": [1.0, 0.5], "times": 0}

    def seconds(device, functions):
        for function in functions:
            function()
        found["times"] += 1
        return found["seconds"]

    monkeypatch.setattr(quickest, "RIVALS", {"cpu": ("sdpa_math",)})
    monkeypatch.setattr(quickest, "interleaved_seconds", seconds)
    monkeypatch.setattr(attention, "user_folder", lambda name: tmp_path / name)
    return found


def test_each_shape_is_timed_in_the_first_step_and_the_report_shows_it(studio, baseline, timed):
    model = studio.attention(studio.model, "auto")
    assert relative(studio.sample(model), baseline) < 1e-4
    assert timed["times"] == 4  # two levels, attention to the picture and to the text
    report = studio.report(model)
    assert "sdpa_math in 28 attention calls\n    calls: 28, fallbacks: 0" in report
    assert (
        "timed for 384 x 384 tokens, head size 8, float32: sdpa 1e+03 ms, sdpa_math 500 ms; sdpa_math is used" in report
    )
    studio.sample(model)
    studio.sample(studio.attention(studio.model, "auto"))  # the next start: the file knows
    assert timed["times"] == 4


def test_where_the_hosts_own_kernel_is_the_quickest_nothing_is_installed_any_more(studio, baseline, timed):
    timed["seconds"] = [1.0, 0.99]
    model = studio.attention(studio.model, "auto")
    assert torch.equal(studio.sample(model), baseline)
    technique = model.get_attachment("paceline").find("attention")
    used = technique.runs.latest.activity
    assert used.used == {"sdpa": 14} and used.skipped  # the second step needed no hook
    assert torch.equal(studio.sample(model), baseline)
    assert "ComfyUI's own attention was the quickest of those timed" in studio.report(model)
    assert "sdpa is used" in studio.report(model)
    studio.sample(model, size=(16, 16))
    assert technique.runs.latest.activity.used  # another size is another question
