"""Recipes are data: they survive being saved, and a file that is not one is refused with a sentence."""

from __future__ import annotations

import json

import pytest
from paceline.optimizers.core.errors import InvalidSetting
from paceline.service.recipe import FORMAT, Recipe, Step, load_recipe, save_recipe

RECIPE = Recipe(
    "mine",
    (Step("PacelineApplyToMe", {"method": "merge", "ratio": 0.5}), Step("PacelineCompileUNet", {"fullgraph": True})),
    "schön schnell",
    {"device": "cpu"},
)


def test_a_saved_recipe_comes_back(tmp_path):
    path = tmp_path / "deep" / "mine.json"
    save_recipe(RECIPE, path)
    assert load_recipe(path) == RECIPE
    assert [entry.name for entry in path.parent.iterdir()] == ["mine.json"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5_000, "NaN", '"\ud800"', "\0"])
def test_no_text_is_more_than_refused(text, tmp_path):
    path = tmp_path / "sent.json"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(InvalidSetting):
        load_recipe(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("paceline_recipe"), "no number paceline_recipe"),
        (lambda d: d.update(paceline_recipe=FORMAT + 1), "Update Paceline"),
        (lambda d: d.update(steps=[{"node": 3}]), "steps.0.node: Input should be a valid string"),
        (lambda d: d.update(steps=[{"inputs": {}}]), "steps.0.node: Field required"),
        (lambda d: d.update(steps=[{"node": "PacelineApplyToMe", "inputs": {"ratio": [1]}}]), "steps.0.inputs.ratio"),
        (lambda d: d.update(steps="PacelineApplyToMe"), "cannot be read"),
    ],
)
def test_what_is_not_a_recipe_is_refused(change, words, tmp_path):
    path = tmp_path / "mine.json"
    save_recipe(RECIPE, path)
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidSetting, match=words):
        load_recipe(path)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InvalidSetting, match=r"nowhere\.json cannot be read"):
        load_recipe(tmp_path / "nowhere.json")
    broken = tmp_path / "broken.json"
    broken.write_bytes(b"\xff\xfe{")
    with pytest.raises(InvalidSetting, match=r"broken\.json cannot be read"):
        load_recipe(broken)
    broken.write_text("{")
    with pytest.raises(InvalidSetting, match=r"broken\.json cannot be read \(it is not JSON"):
        load_recipe(broken)
    broken.write_bytes(b" " * (2 << 20))
    with pytest.raises(InvalidSetting, match="more than 1048576 bytes"):
        load_recipe(broken)
