"""benchmarks/diffusers_pipelines.py on small networks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from comfy_host.paths import ROOT
from diffusers_host import networks
from PIL import Image
from random_pipelines import save_complete


@pytest.fixture(scope="module")
def benchmark() -> Any:
    sys.path.append(str(ROOT / "benchmarks"))
    import diffusers_pipelines

    yield diffusers_pipelines
    sys.path.remove(str(ROOT / "benchmarks"))


def run(benchmark: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> dict[str, Any]:
    file = folder / "results.json"
    words = ("--quick", "--pipeline", "sd15", "--sizes", "64", *words, "--json", str(file))
    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks" / "diffusers_pipelines.py"), *words])
    benchmark.main()
    return json.loads(file.read_text())


def test_each_variant_takes_turns_with_the_baseline_and_draws_the_prompts(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompts.txt").write_text("# Parti\na lighthouse\n\na robot in a garden\n")
    words = ["--batches", "2", "--variants", "plain", "xformers", "qkv", "kv+schedule"]
    words += ["--prompts", str(tmp_path / "prompts.txt"), "--pictures", str(tmp_path / "grid.png")]
    found = run(benchmark, monkeypatch, tmp_path, *words)
    rows = found["rows"]
    # The random UNet's float32 heads are no case for xFormers: what cannot be done is said and costs only itself.
    assert [row["name"].split(":")[0] for row in rows] == ["xformers", "plain", "qkv", "kv+schedule"]
    assert [row["seconds_median"] is not None for row in rows] == [False, True, True, True]
    assert rows[0]["work"].endswith("random weights, narrowed to 32 of 320 channels, fewer layers, 64 x 64, batch 2")
    assert rows[1]["speedup"] == 1.0
    assert rows[2]["quality"]["relative_error"] < 1e-3 < rows[3]["quality"]["relative_error"]
    assert 10 < rows[3]["quality"]["psnr"] < 70
    assert "Apply ToMe" in capsys.readouterr().err
    assert Image.open(tmp_path / "grid.png").size == (3 * 64, 2 * 64)


def test_running_out_of_memory_is_a_row_and_nothing_stays_on_the_network(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def measure(*_: Any, **__: Any) -> None:
        raise MemoryError

    def pipeline(options: Any) -> Any:
        made.append(benchmark.random_pipeline(options.pipeline, options.width))
        return made[-1]

    monkeypatch.setattr(benchmark, "measure", measure)
    monkeypatch.setattr(benchmark, "pipeline", pipeline)
    found = run(benchmark, monkeypatch, tmp_path, "--variants", "plain", "kv")
    assert [row["name"] for row in found["rows"]] == ["kv: MemoryError"]
    assert not any(one.denoiser._forward_pre_hooks or "forward" in vars(one.denoiser) for one in made)


def test_trained_weights_come_from_a_folder(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_complete(tmp_path / "model")
    words = ("--variants", "plain", "kv", "--weights", str(tmp_path / "model"))
    found = run(benchmark, monkeypatch, tmp_path, *words)
    assert f"weights of {tmp_path / 'model'}" in found["rows"][1]["work"]


def test_the_rows_of_the_recipe_add_up_and_each_can_be_left_out(benchmark: Any) -> None:
    whole = benchmark.recipe(benchmark.RECIPE, "inductor")
    assert [len(variant.settings) for variant in whole] == [1, 2, 2, 3, 4, 5]
    for left_out in benchmark.RECIPE:
        rows = benchmark.recipe([name for name in benchmark.RECIPE if name != left_out], "inductor")
        assert [row.name for row in rows] == [row.name for row in whole if row.name != f"+ {left_out}"]


@pytest.mark.thorough
def test_the_recipe_runs(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(benchmark, monkeypatch, tmp_path, "--recipe", "sdpa", "compile", "--compiler", "eager")
    assert [row["name"] for row in found["rows"]] == ["fp32, plain attention", "+ sdpa", "+ compile"]
    assert all(row["quality"]["relative_error"] < 1e-3 for row in found["rows"][1:])


def test_the_real_architectures_have_their_real_size() -> None:
    sizes = {
        "sd15_unet": 859_520_964,
        "sdxl_unet": 2_567_463_684,
        "flux_transformer": 11_901_408_320,
        "sd3_transformer": 2_028_328_000,
    }
    with torch.device("meta"):
        for name, count in sizes.items():
            network = getattr(networks, name)(networks.REAL_WIDTH)
            assert sum(parameter.numel() for parameter in network.parameters()) == count, name
