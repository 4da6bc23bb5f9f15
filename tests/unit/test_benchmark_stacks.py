"""benchmarks/stacks.py with a tiny pipeline of diffusers; test_on_gpu.py runs it in ComfyUI."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from comfy_host.paths import ROOT

FIRST, LAST = "fp32, plain attention", "bf16, SDPA, compiled, fused, int8"


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import stacks

    return stacks


def run(stacks: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> dict[str, Any]:
    file = folder / "results.json"
    tiny = ("--diffusers", "--quick", "--latent", "8", "--steps", "2", "--rounds", "1", "--compiler", "eager")
    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks" / "stacks.py"), *tiny, *words, "--json", str(file)])
    stacks.main()
    return json.loads(file.read_text())


def test_each_variant_takes_turns_with_the_first_one(
    stacks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["bf16, SDPA", "bf16, SDPA, compiled"]
    found = run(stacks, monkeypatch, tmp_path, "--variants", *names)
    assert [row["name"] for row in found["rows"]] == [FIRST, *names]
    work = "random weights, narrowed to 32 of 320 channels, fewer layers, 64 x 64, batch 1, decoded"
    assert all(row["work"].endswith(work) and row["seconds_median"] and row["roof_share"] for row in found["rows"])
    assert found["rows"][0]["speedup"] == 1.0
    assert 0 < found["rows"][1]["quality"]["relative_error"] < 0.1
    assert "Set Attention Processor" in capsys.readouterr().err


def test_what_cannot_run_costs_only_itself_and_nothing_stays_on_the_network(
    stacks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shared import diffusers_recipe

    made, measured = [], stacks.measure

    def measure(work: str, variants: dict[str, Any], *given: Any, **more: Any) -> Any:
        if "bf16, SDPA" in variants:
            raise MemoryError
        return measured(work, variants, *given, **more)

    def pipeline(*given: Any) -> Any:
        made.append(random_pipeline(*given))
        return made[-1]

    random_pipeline = diffusers_recipe.random_pipeline
    monkeypatch.setattr(stacks, "measure", measure)
    monkeypatch.setattr(diffusers_recipe, "random_pipeline", pipeline)
    found = run(stacks, monkeypatch, tmp_path, "--variants", "bf16, SDPA", "bf16, plain attention")
    assert [row["name"] for row in found["rows"]] == [FIRST, "bf16, plain attention"]
    assert found["notes"]["left out, bf16, SDPA"] == "MemoryError"
    assert not any(one.denoiser._forward_pre_hooks or "forward" in vars(one.denoiser) for one in made)


def test_the_rows_of_the_recipe_add_up(stacks: Any) -> None:
    from shared.diffusers_recipe import variants

    rows = variants("inductor")
    assert [row.name for row in rows][:: len(rows) - 1] == [FIRST, LAST]
    assert [len(row.settings) for row in rows] == [1, 2, 2, 3, 4, 5]
