"""Benchmark Sweep in a real ComfyUI: what a cell can come to, the study, the preset, and going on after a stop."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from sweep_files import kept


def slower_where_tokens_are_many(model: Any, limit: int, error: Exception) -> Any:
    """A model that raises ``error`` where its latent has more than ``limit`` places."""
    clone = model.clone()

    def wrapper(apply: Any, arguments: dict[str, Any]) -> torch.Tensor:
        if arguments["input"].shape[-1] * arguments["input"].shape[-2] > limit:
            raise error
        return apply(arguments["input"], arguments["timestep"], **arguments["c"])

    clone.set_model_unet_function_wrapper(wrapper)
    return clone


def test_every_cell_is_measured_and_kept(sweeping, folders):
    result = sweeping.run("Apply ToMe = off, on\nApply ToMe.preset = custom, quality", runs=2)
    results = kept(folders / "user")
    assert [(entry["state"], len(entry["cell"])) for entry in results] == [("measured", n) for n in (1, 2, 2)]
    for entry in results:
        assert entry["speedup"] > 0 and entry["seconds"] > 0
        assert entry["low"] is not None and 0 <= entry["difference"] < 1
    table, summary = result.result
    assert len(table.splitlines()) == 2 + 3
    assert summary.startswith("3 cells: 3 measured.")
    database = folders / "user" / "__paceline" / "sweeps" / "sweeps.db"
    assert summary.endswith(f'Plots, and other studies beside this one: optuna-dashboard "sqlite:///{database}"')
    (shown,) = result.ui["paceline_sweep"]
    assert [len(shown["cells"]), shown["total"]] == [3, 3]


def test_cells_name_nodes_by_title_or_id(comfy):
    from paceline.nodes import NODES
    from paceline.service.recipe import Step
    from paceline.service.sweep.run_sweep import read_axes, steps_of

    axes = read_axes("Apply ToMe.ratio = 0.5\nPacelineApplyToMe.sx = 2\ncompile unet = on\nFuseQKV=off", NODES)
    cell = {"ApplyToMe.ratio": 0.5, "ApplyToMe.sx": 2, "CompileUNet": "on", "FuseQKV": "off"}
    assert axes == {name: (value,) for name, value in cell.items()}
    assert steps_of(cell) == (Step("PacelineApplyToMe", {"ratio": 0.5, "sx": 2}), Step("PacelineCompileUNet", {}))


def test_what_does_not_fit_or_cannot_be_done_is_a_result(sweeping, folders):
    grid = "SetAttentionProcessor.backend = sdpa, sage"
    full = slower_where_tokens_are_many(sweeping.model, 1, torch.OutOfMemoryError("no room"))
    for _ in range(2):  # the second time nothing is measured
        _, summary = sweeping.run(grid, model=full).result
        assert summary.startswith("2 cells: 1 out of memory, 1 not possible.")
        states = {entry["cell"]["SetAttentionProcessor.backend"]: entry for entry in kept(folders / "user")}
        assert len(kept(folders / "user")) == 2
    assert states["sdpa"]["text"] == "no room" and "sage" in states["sage"]["text"].lower()


def test_an_error_that_is_none_of_these_stops_the_sweep(sweeping):
    with pytest.raises(ZeroDivisionError):
        broken = slower_where_tokens_are_many(sweeping.model, 1, ZeroDivisionError("a bug"))
        sweeping.run("Apply ToMe.preset = quality", model=broken)


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
    result = sweeping.run("Apply ToMe = off, on\nApply ToMe.preset = custom, quality", model=model)
    assert "Saved as the preset 'a study'" in result.result[1] and result.ui["paceline_sweep"][0]["preset"] == "a study"
    assert "a study" in options()
    recipe = json.loads((folders / "user" / "__paceline" / "presets" / "a study.json").read_text())
    fastest = max(kept(folders / "user"), key=lambda entry: entry["speedup"])["cell"]
    assert fastest["ApplyToMe"] == "on"
    expected = {"preset": fastest["ApplyToMe.preset"]}
    assert recipe["steps"] == [{"node": "PacelineApplyToMe", "inputs": expected}]
    with torch.inference_mode():
        optimized, _, report = node.execute(model=sweeping.model, preset="a study").result
    assert report.startswith("a study: 1 of 1 nodes applied. Chosen by Benchmark Sweep")
    assert optimized.get_attachment("paceline").find("token_merging") is not None


def test_the_same_inputs_are_known_again_whatever_their_nodes_are_called():
    from paceline.service.sweep.run_sweep import digest_upstream

    def prompt(loader: str, text: str, words: str) -> dict[str, Any]:
        return {
            loader: {"class_type": "Loader", "inputs": {"ckpt_name": "a"}},
            text: {"class_type": "Text", "inputs": {"clip": [loader, 1], "text": words}},
            "sweep": {
                "class_type": "PacelineBenchmarkSweep",
                "inputs": {"model": [loader, 0], "positive": [text, 0], "steps": 3},
            },
        }

    first = digest_upstream(prompt("1", "2", "an apple"), "sweep", ("model", "positive", "vae"))
    assert first == digest_upstream(prompt("20", "7", "an apple"), "sweep", ("model", "positive", "vae"))
    assert first != digest_upstream(prompt("1", "2", "a pear"), "sweep", ("model", "positive", "vae"))
    assert digest_upstream(None, None, ("model",)) == "not from a workflow"


def test_the_plain_model_is_what_cells_are_held_against(sweeping, folders):
    """Also where a user has hung the sweep behind a node of ours: else that very node would change nothing."""
    tome = sweeping.studio.tome(sweeping.model, preset="quality")
    result = sweeping.run("ApplyToMe.preset = quality", model=tome)
    (entry,) = kept(folders / "user")
    assert entry["difference"] > 0
    said = "taken off for this measurement, because each setting is compared with the plain model: Apply ToMe"
    assert said in result.ui["text"][0]
