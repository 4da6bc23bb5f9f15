"""Files and texts that come with a workflow, from anybody: each is read in no time, and refused in a sentence."""

from __future__ import annotations

import contextlib
import json

import pytest
from paceline import QuantizeInt8
from paceline.optimizers.core.errors import InvalidSetting
from paceline.service.faster.tune import read_workflow
from paceline.service.recipe import FORMAT, Recipe, Step, load_recipe, save_recipe
from paceline.service.sweep.axes import parse_axes

RECIPE = Recipe(
    "mine",
    (Step("PacelineApplyToMe", {"method": "merge", "ratio": 0.5}), Step("PacelineCompileUNet", {"fullgraph": True})),
    "schön schnell",
    {"device": "cpu"},
)
NONSENSE = (
    "[" * 100_000, '{"a":' * 100_000, "9" * 5_000, "NaN", '"\ud800"', "\0", "{", '{"nodes": [], "links": []}', "\udcff",
    '{"4": {"inputs": {}}}', '{"4": {"class_type": "A", "inputs": {"seed": ' + "9" * 5000 + "}}}",
    r'{"4": {"class_type": "A", "inputs": {"text": "\ud800"}}}', " " * (2 << 20),
)  # fmt: skip


@pytest.mark.parametrize(
    ("read", "words"), [(load_recipe, r"sent\.json"), (read_workflow, r"Export \(API\)")], ids=["preset", "workflow"]
)
@pytest.mark.parametrize("text", NONSENSE, ids=range(len(NONSENSE)))
def test_no_file_is_more_than_refused(read, words, text, tmp_path):
    path = tmp_path / "sent.json"
    path.write_bytes(text.encode(errors="surrogatepass") if text != "\udcff" else b"\xff\xfe{")
    with pytest.raises(InvalidSetting, match=words):
        read(path)
    with pytest.raises(InvalidSetting, match=r"nothing\.json cannot be read \(No such file or directory\)"):
        read(tmp_path / "nothing.json")


def test_a_saved_preset_comes_back(tmp_path):
    path = tmp_path / "deep" / "mine.json"
    save_recipe(RECIPE, path)
    assert load_recipe(path) == RECIPE
    assert [entry.name for entry in path.parent.iterdir()] == ["mine.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"paceline_recipe": None}, "no number paceline_recipe"),
        ({"paceline_recipe": FORMAT + 1}, "Update Paceline"),
        ({"steps": [{"node": 3}]}, "steps.0.node: Input should be a valid string"),
        ({"steps": [{"inputs": {}}]}, "steps.0.node: Field required"),
        ({"steps": [{"node": "PacelineApplyToMe", "inputs": {"ratio": [1]}}]}, "steps.0.inputs.ratio"),
        ({"steps": "PacelineApplyToMe"}, "cannot be read"),
    ],
)
def test_what_is_not_a_preset_is_refused(change, words, tmp_path):
    path = tmp_path / "mine.json"
    save_recipe(RECIPE, path)
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change))
    with pytest.raises(InvalidSetting, match=words):
        load_recipe(path)


LONG = {
    "brackets": "A.x = " + "[" * 300_000,
    "spaces": "A.x = " + "a" * 300_000 + " " * 300_000 + "a",
    "digits": "A.x = " + "9" * 300_000,
    "equals": "A.x " + "=" * 300_000,
    "name": "A" * 300_000 + "! = 1",
}


@pytest.mark.parametrize("line", LONG.values(), ids=LONG)
def test_no_axis_of_a_sweep_takes_long(line):
    """Pytest's time limit ends one that takes for ever."""
    with contextlib.suppress(InvalidSetting):
        parse_axes(line, str, lambda name, value: None)


@pytest.mark.parametrize("part", ["*a", "*?a", "*a*,", "a,", "?", "*", "*.*_*", "*t*o*_*x,", "*" + "?" * 400 + "q"])
def test_no_list_of_layers_takes_long(part):
    settings = QuantizeInt8(exclude=(part * 10_000)[:10_000])
    for place in range(1000):  # a large model has so many layers
        settings.is_excluded(f"input_blocks.1.1.transformer_blocks.{place}.attn1.to_out.0")
