"""The translations: complete, and readable by the frontend's i18n."""

from __future__ import annotations

import re

import pytest
import torch
import update_locales
from comfy_host.paths import ROOT
from paceline.core.activity import Activity
from paceline.core.phrases import (
    PLACEHOLDER,
    any_of,
    clause,
    data,
    joined,
    phrase,
    restored,
    sentence,
    translatable,
)
from paceline.optimizers.attention.backend import AttentionCall, Limits
from paceline.optimizers.token_merging.policy import ALL_KEPT
from phrases_in_code import plain_sentences
from update_locales import english, frontends_own, languages, load, merged, texts, untranslated

# The frontend compiles translations with vue-i18n, where these have a meaning.
SYNTAX = re.compile(r"[{}@|]|\$t\(")

REPORTS = "pacelineReports"

PLURALS = {"ar": (6,), "es": (2, 3), "ja": (1,), "th": (1,), "zh": (1,)}
"""How many words a translation can have for a number of things; Intl.PluralRules of the browser chooses."""


@pytest.fixture(scope="module")
def source() -> dict:
    return english()


def test_english_has_every_node_setting_and_command(source):
    tome = source["nodeDefs"]["PacelineApplyToMe"]
    assert tome["display_name"] == "Apply ToMe"
    assert tome["inputs"]["ratio"] == {"name": "ratio"}
    assert source["settings"]["Paceline_DefaultPreset"]["options"]["fast"] == "fast"
    assert all(setting["name"] and setting["tooltip"] for setting in source["settings"].values())
    assert source["commands"]["Paceline_Report"] == {"label": "Paceline: report"}
    assert source["commands"]["Paceline_MakeFaster"] == {"label": "Paceline: make this workflow faster"}
    assert source["main"]["paceline"]["active"] == "active"
    assert len(source["settings"]) == 3


def test_english_has_the_heading_of_the_templates_and_the_names_of_commands_too(source):
    assert load("en")["main"] == frontends_own(source)
    assert load("en")["commands"] == source["commands"]
    assert source["main"]["templateWorkflows"]["category"]["ComfyUI-Paceline"] == "Paceline"


def test_every_input_has_a_name_and_no_english_text_breaks_the_frontend(source):
    for name, tree in source.items():
        for path, text in texts(tree):
            assert text, (name, path)


def test_the_languages_of_our_sources_and_the_two_largest_are_there():
    assert set(languages()) >= {"ar", "es", "ja", "th", "zh"}


@pytest.mark.parametrize("language", languages())
def test_a_language_is_complete(source, language):
    present = load(language)
    for name, tree in source.items():
        assert untranslated(tree, present[name]) == []
        assert {path for path, _ in texts(present[name])} == {path for path, _ in texts(tree)}


@pytest.mark.parametrize("language", languages())
def test_a_language_has_no_accidental_syntax(language):
    for tree in load(language).values():
        for path, text in texts(tree):
            if path[0] != REPORTS:  # which the frontend never reads
                assert not SYNTAX.search(text), path


@pytest.mark.parametrize("language", languages())
def test_a_report_has_the_numbers_of_the_english_one(language):
    """A number that is left out, or that has another form, would say something else."""
    for template, translated in load(language)["main"][REPORTS].items():
        values = [[match[:2] for match in PLACEHOLDER.findall(text) if not match[2]] for text in (template, translated)]
        assert sorted(values[0]) == sorted(values[1]), template
        assert {name for name, _, words in PLACEHOLDER.findall(translated) if words} <= {
            name for name, _ in values[0]
        }, template
        for _, _, words in PLACEHOLDER.findall(translated):
            assert not words or len(words.split("|")) in PLURALS[language], template


def test_a_phrase_is_english_text_and_data():
    """What logs read, and what the browser makes a sentence of another language from."""
    steps = phrase("{count} {count|step|steps} in {seconds:.2f} s", count=1, seconds=2)
    assert steps == "1 step in 2.00 s"
    assert steps.values == {"count": 1, "seconds": 2}
    nested = data(sentence(phrase("not active: {why}", why=joined(", ", ["a", steps]))))
    assert nested["starts"]
    assert nested["values"]["why"]["values"]["part1"]["template"] == steps.template
    assert sentence(phrase("not active")) == "Not active"
    shorter = clause(phrase("{model} is empty; load another.", model="This"))
    assert shorter == "This is empty, load another"
    assert (data(shorter)["template"], data(shorter)["clause"]) == ("{model} is empty; load another.", True)
    assert any_of(("a", "b", "c")) == "a or b or c"
    assert data(phrase("{x}", x=float("nan")))["values"] == {"x": "nan"}  # JSON has no such number


def test_a_value_is_translated_only_if_it_is_a_phrase():
    """A preset, a file or a node can have the name of something that is in the table of translations."""
    assert "steps" in load("es")["main"][REPORTS]
    values = data(phrase("{name}: {what}", name="steps", what=translatable("steps")))["values"]
    assert values["name"] == "steps"
    assert values["what"]["template"] == "steps"
    already = phrase("{count} cells", count=2)
    assert translatable(already) is already
    # Reasons are counted as plain texts, also in code that torch compiles, and are phrases where they are said.
    activity = Activity(fallbacks={ALL_KEPT: 2}, skipped={"block": ALL_KEPT})
    for line in (*activity.fallback_lines(), *activity.skipped_lines()):
        assert data(line)["values"]["reason"]["template"] == ALL_KEPT


def test_a_reason_from_traced_code_finds_its_values_again():
    """Code under torch.compile fills in a plain text; where it is said, it is looked up by its template."""
    made = translatable("96 tokens are too few to gain from fewer")
    assert data(made)["template"] == "{tokens} tokens are too few to gain from fewer"
    assert data(made)["values"] == {"tokens": "96"}
    assert made == "96 tokens are too few to gain from fewer"
    limit = Limits(max_head_dim=128).refusal(AttentionCall("cpu", torch.float32, 160, query_tokens=8, key_tokens=8))
    assert data(translatable(limit))["values"] == {"size": "160", "most": "128"}
    assert data(translatable("tokens are too few to gain from fewer"))["values"] == {}


NO_PAGE = ("optimizers/hosts/diffusers/", "workbench/diffusers/", "workbench/comfyui/tuning/")
"""Folders whose sentences only users of Python and of commands read."""

FOR_PROGRAMMERS = {
    "core/errors.py", "nodes/foreign.py", "nodes/routes.py", "nodes/trial.py", "optimizers/step_reuse/settings.py",
    "optimizers/token_merging/kv_downsample.py", "optimizers/token_merging/local_merge.py",
    "optimizers/token_merging/matching.py", "workbench/comfyui/sweeping/command.py",
    "workbench/comfyui/calibration/command.py", "workbench/comfyui/standalone.py",
}  # fmt: skip
"""Files with sentences about calls that no page makes, and of commands."""


def test_no_sentence_that_reaches_the_screen_is_plain_text():
    found = plain_sentences(ROOT)
    assert {name: texts for name, texts in found.items() if not name.startswith(NO_PAGE)}.keys() <= FOR_PROGRAMMERS
    assert "nodes/trial.py" in found  # what looks for them finds some


def test_a_phrase_that_was_kept_is_one_again_and_what_is_damaged_is_plain_text():
    kept = phrase("{count} cells", count=2)
    again = restored("2 cells", data(kept))
    assert (again, data(again)) == ("2 cells", data(kept))
    for damaged in (None, 3, "text", [], {}, {"template": 3, "values": {}}, {"template": "{x}", "values": ["x"]}):
        assert data(restored("2 cells", damaged)) == "2 cells"
    assert not hasattr(restored("2 cells", {**data(kept), "planted": 1}), "planted")


def test_updating_keeps_translations_and_follows_the_code():
    source = {"a": {"name": "An apple", "tooltip": "A red one"}, "b": {"name": "A pear"}}
    translated = {"a": {"name": "Ein Apfel", "gone": "weg"}, "c": {"name": "weg"}}
    assert merged(source, translated) == {"a": {"name": "Ein Apfel", "tooltip": "A red one"}, "b": {"name": "A pear"}}
    assert untranslated(source, translated) == [("a", "tooltip"), ("b", "name")]
    assert update_locales.LOCALES.name == "locales"
