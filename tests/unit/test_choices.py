"""The three choices say the same in every host, and what they promise is what was measured."""

from __future__ import annotations

import json

import pytest
from comfy_host.paths import ROOT
from paceline.optimizers.core.choices import CHOICES, HARDLY_VISIBLE, SAME, VISIBLE
from paceline.optimizers.token_merging.tome_settings import PRESETS

MEASURED = json.loads((ROOT / "benchmarks" / "results" / "peers_large_cpu.json").read_text())["rows"]


@pytest.mark.parametrize(("name", "allowed"), [("balanced", HARDLY_VISIBLE), ("fast", VISIBLE)])
def test_a_choice_moves_pictures_no_farther_than_its_name_says(name: str, allowed: float):
    choice = CHOICES[name]
    row = next(row for row in MEASURED if row["name"] == f"Apply ToMe, {choice.merging}")
    shares = sorted(map(float, row["pairs"]["share"].split()))
    assert 0 < shares[len(shares) * 9 // 10] < allowed  # nine of ten pictures
    assert choice.limit < allowed


def test_choices_name_what_there_is():
    assert CHOICES["lossless"].merging == "" and CHOICES["lossless"].limit == SAME
    assert {choice.merging for choice in CHOICES.values()} <= {"", *PRESETS}


@pytest.mark.parametrize("name", CHOICES)
def test_the_page_calls_a_choice_what_every_host_calls_it(name: str):
    words = json.loads((ROOT / "locales/en/main.json").read_text())["paceline"]
    assert (words[f"choice_{name}"], words[f"choice_{name}_why"]) == (CHOICES[name].label, CHOICES[name].sentence)
