"""The shipped example workflows and our error messages, in a real ComfyUI server."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from cases import often
from comfy_host.cached import generated
from comfy_host.client import PromptFailed
from comfy_host.paths import ROOT
from comfy_host.templates import nodes_of as nodes_of_workflow
from comfy_host.workflow import to_api
from made_examples import MADE
from PIL import Image

pytestmark = pytest.mark.slow

FOLDER = ROOT / "example_workflows"
ALL = sorted(FOLDER.glob("*.json"))
EXAMPLES = [path for path in ALL if path.stem not in MADE]  # those in MADE are drawn by test_templates.py
# One that compiles runs with each change: the one with most nodes, on the model that is traced in the shortest time.
COMPILED = FOLDER / "Faster SDXL - everything at once.json"
PLAIN = ROOT / "tests" / "data" / "text_to_image.json"
OPTIMIZED = FOLDER / "Text to image - token merging.json"


def nodes_of(prompt: dict, class_type: str) -> list[str]:
    return [key for key, node in prompt.items() if node["class_type"] == class_type]


STAND_INS = {
    "KSampler": {"steps": 2},
    "EmptyLatentImage": {"width": 64, "height": 96},
    "PacelineCompileUNet": {"backend": "eager"},
    "PacelineCompileVAE": {"backend": "eager"},
    "PacelineCompareModels": {"steps": 2, "runs": 2, "most_runs": 0},
}
"""Generated models, and sizes that a CPU draws in seconds. What is compiled is only traced."""


def example(path: Path, client, checkpoint: Path) -> dict:
    """A shipped workflow in API form, set to the generated models and a small size."""
    prompt = to_api(json.loads(path.read_text(encoding="utf-8")), client.object_info())
    for class_type, inputs in {**STAND_INS, "CheckpointLoaderSimple": {"ckpt_name": checkpoint.name}}.items():
        for key in nodes_of(prompt, class_type):
            prompt[key]["inputs"].update(inputs)
    return prompt


@pytest.fixture(scope="module")
def workflow(client, sd15_checkpoint):
    """The example with both nodes, ready to be changed."""
    return example(OPTIMIZED, client, sd15_checkpoint)


@pytest.fixture(scope="module")
def furnished(server, sd15_checkpoint):
    """The server with a picture to begin with."""
    picture = np.random.default_rng(0).integers(0, 256, (24, 16, 3), dtype=np.uint8)
    Image.fromarray(picture).resize((64, 96)).save(server.input_dir / "example.png")
    server.add_model("checkpoints", generated("sd15_smallest"))


@pytest.mark.parametrize("path", often((OPTIMIZED, COMPILED), EXAMPLES), ids=lambda path: path.stem)
def test_every_example_draws_an_image(path, client, sd15_checkpoint, furnished):
    prompt = example(path, client, generated("sd15_smallest") if path == COMPILED else sd15_checkpoint)
    result = client.run(prompt)
    image = result.pixels()
    assert image.std() > 1  # not one colour
    if nodes_of(prompt, "SaveImage"):
        assert image.shape == (96, 64, 3)
    # Each of our nodes that works on a model says what it did, and nothing failed on the way.
    told = {event["node"]: event for event in result.of_type("paceline.activity")}
    quiet = ("PacelineOptimizationReport", "PacelineRemoveOptimizations")
    ours = {key for key, node in prompt.items() if node["class_type"].startswith("Paceline")}
    assert {key for key in ours if prompt[key]["class_type"] not in quiet} <= set(told)
    # What stands on a badge is one clause.
    assert [event["headline"] for event in result.of_type("paceline.activity") if ";" in event["headline"]] == []
    for key, event in told.items():
        # To a comparison of models that know nothing, a changed picture can look wrong.
        judges = prompt[key]["class_type"] == "PacelineCompareModels"
        assert event["state"] in {"active", "partly", "inactive", "waiting", *(["failed"] if judges else [])}, event


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_every_example_has_notes_a_thumbnail_and_known_models(path):
    saved = json.loads(path.read_text(encoding="utf-8"))
    nodes = [*nodes_of_workflow(saved)]
    assert any(node["type"] == "MarkdownNote" for node in saved["nodes"])
    with Image.open(path.with_suffix(".jpg")) as thumbnail:
        assert thumbnail.width == thumbnail.height >= 400  # as the cards of the templates are
    values = [value for node in nodes for value in node.get("widgets_values") or ()]
    named = {value for value in values if isinstance(value, str) and value.endswith("safetensors")}
    assert named
    offered = {model["name"] for node in nodes for model in node.get("properties", {}).get("models", [])}
    assert named == offered


def test_the_nodes_tell_what_they_did(workflow, client, server):
    expected = "active in 3 of 7 self-attention blocks"
    tome, report = nodes_of(workflow, "PacelineApplyToMe")[0], nodes_of(workflow, "PacelineOptimizationReport")[0]
    fresh = copy.deepcopy(workflow)
    fresh[tome]["inputs"]["seed"] = 987654  # so that ComfyUI does not take it from its cache
    result = client.run(fresh)
    told = [event for event in result.of_type("paceline.activity") if event["node"] == tome]
    assert [event["state"] for event in told] == ["waiting", "working", "active"]
    assert {event["title"] for event in told} == {"Apply ToMe"}
    assert len({event["prompt_id"] for event in told}) == 1
    assert told[-1]["headline"] == expected and told[-1]["counts"]["fallbacks"] == 0
    assert "96 -> 48 tokens" in told[-1]["details"]
    assert expected in result.texts[report][0]
    assert "ComfyUI's own attention is sdpa already, so it changes nothing\n" in result.texts[report][0]
    line = next(line for line in reversed(server.log.splitlines()) if "Paceline: " in line)
    assert "Paceline: Set Attention Processor" in line  # one line with everything
    assert f"| Apply ToMe: {expected}" in line


def test_a_mistake_is_a_sentence_in_the_error_dialog(workflow, client):
    prompt = copy.deepcopy(workflow)
    prompt[nodes_of(prompt, "PacelineApplyToMe")[0]]["inputs"] |= {"method": "kv_downsample", "merge_mlp": True}
    with pytest.raises(PromptFailed) as error:
        client.run(prompt)
    assert "method is kv_downsample, which leaves every query in place: merge_mlp would" in error.value.message
    assert "Traceback" not in error.value.message
    # Nothing is lost: the same graph with the mistake mended runs at once.
    assert client.run(workflow).pixels().std() > 5


def test_every_node_is_listed_with_tooltips_and_has_a_help_page(client):
    info = client.object_info()
    ours = {name: node for name, node in info.items() if name.startswith("Paceline")}
    assert sorted(ours) == sorted(folder.name for folder in (ROOT / "web" / "docs").iterdir())
    for name, node in ours.items():
        assert node["category"] in {"Paceline", "Paceline/Advanced"}
        assert node["description"]
        for group in ("required", "optional"):
            for input_name, (kind, *options) in node["input"].get(group, {}).items():
                if kind not in ("MODEL", "VAE", "CONTROL_NET"):
                    assert options and options[0].get("tooltip"), f"{name}.{input_name} has no tooltip"
        assert (ROOT / "web" / "docs" / name / "en.md").stat().st_size > 200
