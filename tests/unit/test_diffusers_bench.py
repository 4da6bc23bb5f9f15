"""``python -m paceline``: the command line on small networks."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paceline.core.errors import InvalidSetting
from paceline.workbench.diffusers.command import main
from paceline.workbench.diffusers.measure import Cell, measure
from paceline.workbench.diffusers.pipelines import PIPELINES
from paceline.workbench.diffusers.variants import RECIPE, Variant, recipe
from PIL import Image
from random_pipelines import save_complete, small

SMALL = ("--width", "32", "--steps", "2", "--rounds", "1", "--device", "cpu", "--quiet")


def run(task: str, folder: Path, *words: str) -> dict[str, Any]:
    assert main([task, *SMALL, "--output", str(folder), *words]) == 0
    return json.loads((folder / "results.json").read_text())


def states(results: dict[str, Any]) -> dict[str, str]:
    return {row["variant"]: row["state"] for row in results["rows"]}


def test_bench_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--pipeline", "sd15", "--size", "64,128", "--batch", "1,2", "--variants", "plain,kv,tome+qkv,xformers")
    results = run("bench", tmp_path, *words)
    assert len(results["rows"]) == 16
    assert states(results) == {"plain": "done", "kv": "done", "tome+qkv": "done", "xformers": "not possible"}
    assert results["random_weights"]
    assert {"machine", "versions", "settings"} <= results["setup"].keys()
    for row in results["rows"]:
        if row["state"] == "done":
            assert row["iterations"] == 3  # PNDM makes one call more than there are steps
            assert row["iterations_per_second"] == pytest.approx(3 / row["seconds"])
            assert row["seconds_least"] <= row["seconds"] <= row["seconds_most"]
    assert any("Apply ToMe" in line for row in results["rows"] for line in row["report"])
    printed, written = capsys.readouterr().out, (tmp_path / "results.md").read_text()
    assert "random weights, narrowed to 32" in written and written in printed
    assert "| 128 | 2 | xformers | not possible |" in written
    assert " %" in written and "python -m paceline bench" in written
    assert Image.open(tmp_path / "results.png").size[0] == 1000


def test_an_interrupted_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--pipeline", "sd15", "--size", "64", "--variants", "plain,kv,qkv")
    whole = run("bench", tmp_path, *words)
    whole["rows"] = whole["rows"][:1]
    whole["rows"][0]["seconds"] = 123.0
    (tmp_path / "results.json").write_text(json.dumps(whole))
    again = run("bench", tmp_path, *words)
    assert [row["seconds"] == 123.0 for row in again["rows"]] == [True, False, False]
    assert "1 of 3 results are in" in capsys.readouterr().out
    assert main(["bench", *SMALL, "--output", str(tmp_path), *words, "--steps", "3"]) == 2
    assert "different: steps" in capsys.readouterr().err
    (tmp_path / "results.json").write_text("{")
    assert main(["bench", *SMALL, "--output", str(tmp_path), *words]) == 2
    assert "is not a file of results" in capsys.readouterr().err


@contextmanager
def address_space(more: int) -> Iterator[None]:
    """Let this process have ``more`` bytes of memory and no further ones."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits of memory are set as Linux has them")
def test_running_out_of_memory_is_a_result(tmp_path: Path) -> None:
    words = ("--pipeline", "sd15", "--size", "64,1024", "--variants", "vanilla", "--steps", "1")
    with address_space(2 * 2**30):
        results = run("bench", tmp_path, *words)
    assert [row["state"] for row in results["rows"]] == ["done", "OOM"]
    assert "| 1024 | 1 | vanilla | OOM |" in (tmp_path / "results.md").read_text()


def test_an_error_without_a_text_is_named_and_nothing_stays_on_the_network() -> None:
    def fails(*_: object) -> dict[str, object]:
        raise MemoryError

    pipeline = small("sd15")
    found = measure(replace(pipeline, arguments=fails), Variant("plain", ()), Cell("plain", 64, 1), 1, 1)
    assert (found.state, found.reason) == ("OOM", "MemoryError")
    assert not pipeline.pipe.unet._forward_pre_hooks


def test_the_recipe_row_by_row_on_a_narrowed_sdxl(tmp_path: Path) -> None:
    words = ("--pipeline", "sdxl", "--size", "64", "--without", "compile", "--steps", "1")
    results = run("recipe", tmp_path, *words)
    found = states(results)
    assert list(found) == ["fp32, plain attention", "+ bf16", "+ sdpa", "+ qkv", "+ int8"]
    assert {found[name] for name in list(found)[:4]} == {"done"}
    # Whether int8 gains anything on layers this small is for the machine to say.
    assert found["+ int8"] in ("done", "not possible")
    titles = [{line.split(": ")[1] for line in row["report"] if ": " in line} for row in results["rows"]]
    assert "Model Precision" in titles[1] and "Fuse QKV" in titles[3] and "Fuse QKV" not in titles[2]


@pytest.mark.slow
def test_the_recipe_compiled(tmp_path: Path) -> None:
    words = ("--pipeline", "flux", "--size", "64", "--rows", "sdpa,compile", "--compile-backend", "eager")
    results = run("recipe", tmp_path, *words)
    assert set(states(results).values()) == {"done"}
    assert any("1 graph, 0 recompiles" in line for line in results["rows"][-1]["report"])


def test_every_row_of_the_recipe_can_be_switched() -> None:
    whole = recipe(RECIPE, "inductor", "max-autotune")
    assert [len(variant.settings) for variant in whole] == [1, 2, 2, 3, 4, 5]
    for left_out in RECIPE[1:]:
        rows = recipe(tuple(name for name in RECIPE if name != left_out), "inductor", "max-autotune")
        assert [row.name for row in rows] == [row.name for row in whole if row.name != f"+ {left_out}"]
        alone = recipe((left_out,), "inductor", "max-autotune")
        assert len(alone) == 2
    with pytest.raises(InvalidSetting, match="no row 'fp8'"):
        recipe(("fp8",), "inductor", "default")


def test_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("# Parti\na lighthouse\n\na robot in a garden\n")
    words = [
        "grid",
        "--pipeline",
        "sd15",
        "--width",
        "32",
        "--size",
        "128",
        "--steps",
        "2",
        "--device",
        "cpu",
        "--quiet",
    ]
    words += ["--prompts", str(prompts), "--variants", "plain,kv,qkv", "--output", str(tmp_path / "out")]
    assert main(words) == 0
    rows = json.loads((tmp_path / "out" / "grid.json").read_text())["rows"]
    assert [row["prompt"] for row in rows] == ["a lighthouse", "a robot in a garden"] * 3
    assert all(row["psnr"] is None for row in rows if row["variant"] == "plain")
    assert all(10 < row["psnr"] < 70 for row in rows if row["variant"] == "kv")
    picture = Image.open(tmp_path / "out" / "grid.png")
    assert picture.height > 2 * 256 and picture.width > 3 * 256
    assert main(["grid", "--prompts", str(tmp_path / "none.txt")]) == 2
    assert "one prompt a line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "--variants", "plain,fast"], "There is no variant 'fast'"),
        (["bench", "--size", "500,x"], "must be multiples of 8"),
        (["bench", "--batch", "0"], "positive whole numbers"),
        (["bench", "--width", "33"], "multiple of 16"),
        (["recipe", "--without", "fp8"], "The recipe's rows are"),
        (["bench", "--weights", "/nowhere"], "No StableDiffusionXLPipeline can be loaded"),
    ],
)
def test_bad_words(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--device", "cpu", "--output", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_trained_weights_come_from_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_complete(tmp_path / "model")
    words = ("--pipeline", "sd15", "--size", "64", "--variants", "plain", "--weights", str(tmp_path / "model"))
    results = run("bench", tmp_path / "out", *words)
    assert not results["random_weights"]
    assert f"weights of {tmp_path / 'model'}" in (tmp_path / "out" / "results.md").read_text()
    assert "random" not in capsys.readouterr().out


def test_the_real_architectures_have_their_real_size() -> None:
    import torch
    from paceline.workbench.diffusers import architectures

    sizes = {
        "sd15_unet": 859_520_964,
        "sdxl_unet": 2_567_463_684,
        "flux_transformer": 11_901_408_320,
        "sd3_transformer": 2_028_328_000,
    }
    with torch.device("meta"):
        for name, count in sizes.items():
            network = getattr(architectures, name)(architectures.REAL_WIDTH)
            assert sum(parameter.numel() for parameter in network.parameters()) == count, name
    assert set(PIPELINES) >= {"sd15", "sdxl", "flux", "sd3"}
