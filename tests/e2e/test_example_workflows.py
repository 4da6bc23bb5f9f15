"""The shipped example workflows and our error messages, in a real ComfyUI server."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from comfy_host.client import PromptFailed
from comfy_host.paths import ROOT
from comfy_host.workflow import to_api

pytestmark = pytest.mark.slow

EXAMPLES = sorted((ROOT / "example_workflows").glob("*.json"))


def nodes_of(prompt: dict, class_type: str) -> list[str]:
    return [key for key, node in prompt.items() if node["class_type"] == class_type]


def example(path: Path, client, checkpoint: Path) -> dict:
    """A shipped workflow in API form, set to the generated checkpoint and a size that a CPU draws in seconds."""
    prompt = to_api(json.loads(path.read_text(encoding="utf-8")), client.object_info())
    changes = {
        "CheckpointLoaderSimple": {"ckpt_name": checkpoint.name},
        "EmptyLatentImage": {"width": 128, "height": 192},
        "KSampler": {"steps": 2},
    }
    for class_type, inputs in changes.items():
        for key in nodes_of(prompt, class_type):
            prompt[key]["inputs"].update(inputs)
    return prompt


def pixels(result) -> np.ndarray:
    return np.asarray(result.image().convert("RGB")).astype(np.int16)


@pytest.fixture(scope="module")
def workflow(client, sd15_checkpoint):
    """The example with both nodes, ready to be changed."""
    return example(ROOT / "example_workflows" / "txt2img_tome_attention.json", client, sd15_checkpoint)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_draws_an_image(path, client, sd15_checkpoint):
    image = pixels(client.run(example(path, client, sd15_checkpoint)))
    assert image.shape == (192, 128, 3)
    assert image.std() > 5


def test_the_nodes_tell_what_they_did(workflow, client, server):
    client.free()
    result = client.run(workflow)
    expected = "active in 3 of 7 self-attention blocks; 384 -> 192 tokens; 0 fallbacks"
    tome, report = nodes_of(workflow, "PacelineApplyToMe")[0], nodes_of(workflow, "PacelineOptimizationReport")[0]
    told = [event for event in result.of_type("paceline.activity") if event["node"] == tome]
    assert [event["state"] for event in told] == ["waiting", "active"]
    assert told[-1]["text"] == expected
    assert expected in result.texts[report][0]
    assert "sdpa in 28 attention calls; 0 fallbacks" in result.texts[report][0]
    assert server.log.count("Paceline: Set Attention Processor") == server.log.count("| Apply ToMe")
    assert f"Apply ToMe: {expected}" in server.log


def test_bypassing_the_nodes_gives_the_baseline_file_bit_for_bit(client, sd15_checkpoint, workflow):
    plain = ROOT / "example_workflows" / "txt2img_baseline.json"
    baseline = pixels(client.run(example(plain, client, sd15_checkpoint)))
    optimized = pixels(client.run(workflow))
    assert not np.array_equal(optimized, baseline)
    saved = json.loads((ROOT / "example_workflows" / "txt2img_tome_attention.json").read_text(encoding="utf-8"))
    for node in saved["nodes"]:
        if node["type"] in ("PacelineApplyToMe", "PacelineSetAttentionProcessor"):
            node["mode"] = 4  # bypassed
    path = Path(sd15_checkpoint).parent / "bypassed.json"
    path.write_text(json.dumps(saved), encoding="utf-8")
    assert np.array_equal(pixels(client.run(example(path, client, sd15_checkpoint))), baseline)


def test_the_baseline_comes_back_after_an_optimised_run_on_the_same_loaded_model(client, workflow):
    ratio_zero = copy.deepcopy(workflow)
    tome = nodes_of(workflow, "PacelineApplyToMe")[0]
    ratio_zero[tome]["inputs"]["ratio"] = 0.0
    first = pixels(client.run(ratio_zero))
    client.run(workflow)
    client_again = copy.deepcopy(ratio_zero)
    client_again[nodes_of(workflow, "KSampler")[0]]["inputs"]["steps"] = 2
    client.free()
    assert np.array_equal(pixels(client.run(client_again)), first)


@pytest.mark.parametrize(
    ("node", "inputs", "message"),
    [
        ("PacelineApplyToMe", {"max_downsample": "1", "sx": 64}, "sx is 64 and sy is 2, but block input 1.0"),
        ("PacelineApplyToMe", {"start_percent": 0.8, "end_percent": 0.2}, "start_percent is 0.8, after end_percent"),
        ("PacelineSetAttentionProcessor", {"backend": "sage"}, "has no kernel for cpu"),
    ],
)
def test_a_mistake_is_a_sentence_in_the_error_dialog(workflow, client, node, inputs, message):
    prompt = copy.deepcopy(workflow)
    key = nodes_of(prompt, node)[0]
    prompt[key]["inputs"].update(inputs)
    with pytest.raises(PromptFailed) as error:
        client.run(prompt)
    assert message in error.value.message
    assert "Traceback" not in error.value.message
    # Nothing is lost: the same graph with the mistake mended runs at once.
    assert pixels(client.run(workflow)).std() > 5


def test_a_value_that_the_widget_would_not_allow_is_refused_before_it_runs(workflow, client):
    prompt = copy.deepcopy(workflow)
    prompt[nodes_of(prompt, "PacelineApplyToMe")[0]]["inputs"]["ratio"] = 1.5
    with pytest.raises(PromptFailed, match="(?i)ratio|bigger than max"):
        client.run(prompt)


def test_every_node_is_listed_with_tooltips_and_has_a_help_page(client):
    info = client.object_info()
    ours = {name: node for name, node in info.items() if name.startswith("Paceline")}
    assert len(ours) == 4
    for name, node in ours.items():
        assert node["category"] == "Paceline"
        assert node["description"]
        for group in ("required", "optional"):
            for input_name, (kind, *options) in node["input"].get(group, {}).items():
                if kind != "MODEL":
                    assert options and options[0].get("tooltip"), f"{name}.{input_name} has no tooltip"
        assert (ROOT / "web" / "docs" / name / "en.md").stat().st_size > 200
