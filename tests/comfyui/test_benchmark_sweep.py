"""Benchmark Sweep in a real ComfyUI: what a cell can come to, the study, the preset, going on, and mistakes."""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import Any

import pytest
import torch
from comparing import Emoji
from paceline.optimizers.core.errors import BackendUnavailable, InvalidSetting
from sweep_files import kept
from writing import comfyui_writes_to


class Sweeping:
    """The demo's trained model, and sweeps with it."""

    def __init__(self, emoji: Emoji) -> None:
        self.emoji, self.studio, self.model = emoji, emoji.studio, emoji.model

    def inputs(self, grid: str, **changes: Any) -> dict[str, Any]:
        solver = {"steps": 2, "sampler_name": "dpmpp_2m", "scheduler": "karras", "runs": 1}
        sampling = self.emoji.sampling(latent_image=self.emoji.whole, **solver)
        return {"model": self.model, "grid": grid, "study": "a study", "largest_difference": 1.0, **sampling, **changes}

    def run(self, grid: str, **changes: Any) -> Any:
        with torch.inference_mode():
            return self.studio.nodes["PacelineBenchmarkSweep"].execute(**self.inputs(grid, **changes))


@pytest.fixture(scope="module")
def sweeping(emoji: Emoji) -> Sweeping:
    return Sweeping(emoji)


@pytest.fixture(autouse=True)
def folders(tmp_path, comfy):
    """ComfyUI's output and user folders, empty."""
    with comfyui_writes_to(output=tmp_path / "output", user=tmp_path / "user"):
        yield tmp_path


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

    def wrapper(apply: Any, arguments: dict[str, Any]) -> torch.Tensor:
        options = arguments["c"]["transformer_options"]
        time.sleep(0.0 if options.get("wrappers", {}).get("apply_model", {}).get("paceline") else 0.3)
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


@pytest.mark.parametrize(
    "changes",
    [
        {"grid": "Apply Tomato.ratio = 0.5"},
        {"grid": "Apply ToMe.ration = 0.5"},
        {"grid": "ApplyToMe.method = murge"},
        {"grid": "ApplyToMe.model = 1"},
        {"grid": "CompareModels = on"},
        {"grid": "QuantizeInt8.exclude = \ud800"},
        {"study": "fast"},
        {"trials": -1},
    ],
    ids=range(8),
)
def test_mistakes_are_found_before_anything_runs(reads, sweeping, folders, changes):
    reads.refused(InvalidSetting, sweeping.run, **{"grid": "ApplyToMe.preset = quality", "model": None, **changes})
    assert not list(folders.rglob("*.db")) and not list(folders.rglob("*.json"))


def test_a_workflow_cannot_say_where_a_storage_is(sweeping, folders):
    """No input takes an address, and the study's name, the only text that reaches Optuna, is no part of a path."""
    from comfy_api.latest import io

    schema = sweeping.studio.nodes["PacelineBenchmarkSweep"].define_schema()
    assert [entry.id for entry in schema.inputs if isinstance(entry, io.String.Input)] == ["grid", "study"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"postgresql+psycopg://ada@127.0.0.1:{server.getsockname()[1]}/x"
        for study in (url, "sqlite:////tmp/x.db", "../x", "a\0", "{SCHEMA_VERSION}"):
            with pytest.raises(InvalidSetting):
                sweeping.run("ApplyToMe.preset = quality", study=study)
        with pytest.raises(BlockingIOError):  # nobody has connected
            server.accept()
    assert not list(folders.rglob("*.db"))


def test_without_optuna_it_says_what_to_install_and_the_rest_works(sweeping, monkeypatch):
    """That all nodes load without it: tests/e2e/test_registry_archive.py."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(BackendUnavailable, match="Benchmark Sweep needs Optuna.*Run `pip install optuna`"):
        sweeping.run("ApplyToMe.preset = quality")
    tome = sweeping.studio.tome(sweeping.model, preset="quality")
    assert tome.get_attachment("paceline").find("token_merging") is not None
