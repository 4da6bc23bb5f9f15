"""Benchmark Sweep in a real ComfyUI: what a cell can come to, the files, the preset, and going on after a stop."""

from __future__ import annotations

import csv
import json
from typing import Any

import numpy as np
import pytest
import torch
from comfy_host import vaes
from paceline.core.errors import InvalidSetting
from PIL import Image
from sweep_files import saved
from writing import comfyui_writes_to


def slower_where_tokens_are_many(model: Any, limit: int, error: Exception) -> Any:
    """A model that raises ``error`` where its latent has more than ``limit`` places."""
    clone = model.clone()

    def wrapper(apply: Any, arguments: dict[str, Any]) -> torch.Tensor:
        if arguments["input"].shape[-1] * arguments["input"].shape[-2] > limit:
            raise error
        return apply(arguments["input"], arguments["timestep"], **arguments["c"])

    clone.set_model_unet_function_wrapper(wrapper)
    return clone


def test_every_cell_is_measured_and_saved_in_all_its_forms(sweeping, folders):
    grid = "ApplyToMe.preset: fast\nsize: 128, 256x128\nbatch: 1, 2"
    result = sweeping.run(grid)
    content = saved(folders)
    assert [entry["state"] for entry in content["results"]] == ["measured"] * 4
    assert content["measured_now"] == 4
    for entry in content["results"]:
        assert entry["speedup"] > 0 and entry["seconds"] > 0 and entry["memory_bytes"] > 50e6
        assert 0 <= entry["difference"] < 1
        assert entry["numbers"]["psnr"] > 10
    rows = list(csv.DictReader((folders / "output" / "paceline" / "sweep_00001_.csv").open()))
    assert [float(row["speedup"]) for row in rows] == [entry["speedup"] for entry in content["results"]]
    assert [(row["size"], row["batch"]) for row in rows] == [
        ("128", "1"), ("128", "2"), ("256x128", "1"), ("256x128", "2")]  # fmt: skip
    plot = Image.open(folders / "output" / "paceline" / "sweep_00001_.png")
    image, table, summary = result.result
    assert np.array_equal((image[0] * 255).round().numpy(), np.asarray(plot))
    assert table in (folders / "output" / "paceline" / "sweep_00001_.md").read_text()
    assert len(table.splitlines()) == 2 + 4
    assert summary.startswith("4 of 4 cells: 4 measured.")
    assert result.ui["images"] == [{"filename": "sweep_00001_.png", "subfolder": "paceline", "type": "output"}]


def test_cells_name_nodes_with_their_prefix_or_without(comfy):
    from paceline.server.sweeps import steps_of
    from paceline.workbench.recipe import Step

    cell = {"ApplyToMe.ratio": 0.5, "PacelineApplyToMe.sx": 2, "CompileUNet": "on", "FuseQKV": "off", "size": 512}
    assert steps_of(cell) == (Step("PacelineApplyToMe", {"ratio": 0.5, "sx": 2}), Step("PacelineCompileUNet", {}))
    assert steps_of({"ApplyToMe": "on", "ApplyToMe.ratio": 0.5, "batch": 2}) == (
        Step("PacelineApplyToMe", {"ratio": 0.5}),
    )


def test_a_grid_can_be_written_with_the_titles_of_nodes(comfy):
    from paceline.nodes import NODES
    from paceline.server.sweeps import read_axes

    assert read_axes("Apply ToMe.ratio: 0.5\napply tome.sx: 2, 4\nCompile UNet: on, off\nsize: 512", NODES).values == {
        "ApplyToMe.ratio": (0.5,), "ApplyToMe.sx": (2, 4), "CompileUNet": ("on", "off"), "size": (512,)}  # fmt: skip
    with pytest.raises(InvalidSetting, match="Apply ToMe.ratio is there twice, also as ApplyToMe.ratio"):
        read_axes("ApplyToMe.ratio: 0.5\nApply ToMe.ratio: 0.6", NODES)
    with pytest.raises(InvalidSetting, match="There is no node Apply Tomato"):
        read_axes("Apply Tomato.ratio: 0.5", NODES)


def test_a_cell_samples_the_size_and_batch_it_asks_for(sweeping):
    from paceline.nodes import NODES
    from paceline.server.sweeps import bench_for
    from paceline.workbench.comfyui.comparison import ComparisonSettings
    from paceline.workbench.comfyui.sampling import SamplingJob

    image = torch.arange(2 * 4 * 32 * 32, dtype=torch.float32).view(2, 4, 32, 32)
    latent = {"samples": image, "batch_index": [4, 5], "noise_mask": torch.ones(1, 1, 32, 32)}
    job = SamplingJob([], [], latent, 0, 2, 2.0, "euler", "normal")
    bench = bench_for(NODES, sweeping.model, None, job, ComparisonSettings())
    assert bench.latent({"ApplyToMe.ratio": 0.5}) is latent
    resized = bench.latent({"size": "256x128", "batch": 3})
    assert resized["samples"].shape == (3, 4, 16, 32)
    assert torch.equal(resized["samples"][2], resized["samples"][0])
    assert "batch_index" not in resized and "noise_mask" in resized
    assert latent["samples"].shape == (2, 4, 32, 32) and "batch_index" in latent
    with pytest.raises(InvalidSetting, match="Use multiples of 8"):
        bench.latent({"size": 100})


def test_what_does_not_fit_or_cannot_be_done_is_a_result(sweeping, folders):
    model = slower_where_tokens_are_many(sweeping.model, 16 * 32, torch.OutOfMemoryError("no room"))
    grid = "SetAttentionProcessor.backend: sdpa_math, sage\nsize: 128, 512"
    sweeping.run(grid, model=model, runs=2)
    states = {(e["cell"]["SetAttentionProcessor.backend"], e["cell"]["size"]): e for e in saved(folders)["results"]}
    assert {key: entry["state"] for key, entry in states.items()} == {
        ("sdpa_math", 128): "measured", ("sdpa_math", 512): "out of memory",
        ("sage", 128): "not possible", ("sage", 512): "not possible",
    }  # fmt: skip
    assert states["sdpa_math", 512]["text"] == "during another seed: no room"
    assert "sage" in states["sage", 128]["text"].lower()
    assert sweeping.run(grid, model=model, runs=2).result[2].startswith("4 of 4 cells: 1 measured, 1 out of memory, 2")
    assert saved(folders)["measured_now"] == 0


def test_a_cell_counts_where_its_picture_cannot_be_kept(sweeping, folders, caplog):
    (folders / "temp").mkdir()
    (folders / "temp" / "paceline_cells").write_text("in the way of the folder")
    with comfyui_writes_to(temp=folders / "temp"):
        sweeping.run("SetAttentionProcessor.backend: sdpa_math")
    assert [entry["state"] for entry in saved(folders)["results"]] == ["measured"]
    assert "the picture of a cell is not shown" in caplog.text


def test_an_error_that_is_none_of_these_stops_the_sweep(sweeping):
    with pytest.raises(ZeroDivisionError):
        sweeping.run("size: 128", model=slower_where_tokens_are_many(sweeping.model, 1, ZeroDivisionError("a bug")))


def test_the_best_becomes_a_preset_that_the_other_node_lists_and_applies(sweeping, folders):
    node = sweeping.studio.nodes["PacelineOptimizePreset"]
    options = lambda: {entry.id: entry for entry in node.define_schema().inputs}["preset"].options  # noqa: E731
    assert "a study" not in options()
    # Slower by its own hand, so that the speed-up does not depend on the machine: without ToMe, calls take long.
    import time

    def wrapper(apply: Any, arguments: dict[str, Any]) -> torch.Tensor:
        plain = not arguments["c"]["transformer_options"].get("paceline_active_stack") and not arguments["c"][
            "transformer_options"
        ].get("wrappers", {}).get("apply_model", {}).get("paceline")
        time.sleep(0.3 if plain else 0.0)
        return apply(arguments["input"], arguments["timestep"], **arguments["c"])

    model = sweeping.model.clone()
    model.set_model_unet_function_wrapper(wrapper)
    result = sweeping.run("ApplyToMe: off, on\nApplyToMe.preset: quality, fast\nsize: 128", model=model)
    content = saved(folders)
    assert content["preset"]["name"] == "a study"
    assert content["preset"]["cell"]["ApplyToMe"] == "on"
    assert "Saved as the preset 'a study'" in result.result[2]
    assert "a study" in options()
    recipe = json.loads((folders / "user" / "__paceline" / "presets" / "a study.json").read_text())
    expected = {"preset": content["preset"]["cell"]["ApplyToMe.preset"]}
    assert recipe["steps"] == [{"node": "PacelineApplyToMe", "inputs": expected}]
    with torch.inference_mode():
        optimized, _, report = node.execute(model=sweeping.model, preset="a study").result
    assert report.startswith("a study: 1 of 1 steps applied. Found by Benchmark Sweep")
    assert optimized.get_attachment("paceline").find("token_merging") is not None


def test_a_search_goes_through_a_range(sweeping, folders):
    grid = "ApplyToMe.preset: custom\nApplyToMe.ratio: 0.1 .. 0.9\nsize: 128"
    sweeping.run(grid, search="optuna", trials=3)
    ratios = [entry["cell"]["ApplyToMe.ratio"] for entry in saved(folders)["results"]]
    assert len(set(ratios)) == 3 and all(0.1 <= ratio <= 0.9 for ratio in ratios)


def test_the_same_inputs_are_known_again_whatever_their_nodes_are_called():
    from paceline.workbench.comfyui.sweeping.run import upstream

    def prompt(loader: str, text: str, words: str) -> dict[str, Any]:
        return {
            loader: {"class_type": "Loader", "inputs": {"ckpt_name": "a"}},
            text: {"class_type": "Text", "inputs": {"clip": [loader, 1], "text": words}},
            "sweep": {"inputs": {"model": [loader, 0], "positive": [text, 0], "steps": 3}},
        }

    first = upstream(prompt("1", "2", "an apple"), "sweep", ("model", "positive", "vae"))
    assert first == upstream(prompt("20", "7", "an apple"), "sweep", ("model", "positive", "vae"))
    assert first != upstream(prompt("1", "2", "a pear"), "sweep", ("model", "positive", "vae"))
    assert upstream(None, None, ("model",)) == "not from a workflow"


def test_a_vae_is_part_of_the_cells(sweeping, folders):
    sweeping.run("ApplyToMe.preset: quality\nsize: 128", vae=vaes.taesd())
    entry = saved(folders)["results"][0]
    assert entry["state"] == "measured"
    assert entry["numbers"]["ssim"] <= 1


def test_the_plain_model_is_what_cells_are_held_against(sweeping, folders):
    """Also where a user has hung the sweep behind a node of ours: else that very node would change nothing."""
    tome = sweeping.studio.tome(sweeping.model, preset="fast")
    result = sweeping.run("ApplyToMe.preset: fast", model=tome)
    (entry,) = saved(folders)["results"]
    assert entry["difference"] > 0
    said = "taken off for this measurement, because each setting is held against the plain model: Apply ToMe"
    assert said in result.ui["text"][0]
