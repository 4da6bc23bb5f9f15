"""The translations: complete, and readable by the frontend's i18n; so are the help pages."""

from __future__ import annotations

import re

import help_pages
import pytest
import update_locales
from comfy_host.paths import ROOT
from paceline.optimizers.core.phrases import PLACEHOLDER, data, phrase
from phrases_in_code import plain_headlines
from sentences import sentences, too_long
from update_locales import english, frontends_own, languages, load, merged, texts, untranslated

# The frontend compiles translations with vue-i18n, where these have a meaning.
SYNTAX = re.compile(r"[{}@|]|\$t\(")

REPORTS = "pacelineReports"

RIDDLE = re.compile(r"\b(ones?|what) (that|was|were|is|are)\b|\b(the|that|other|each) ones?\b|\b(knows|wants|looks)\b")
"""A pronoun for a thing that has a name, and code as a person."""

PLURALS = {"ar": (6,), "es": (2, 3), "ja": (1,), "th": (1,), "zh": (1,)}
"""How many words a translation can have for a number of things; Intl.PluralRules of the browser chooses."""


@pytest.fixture(scope="module")
def source() -> dict:
    return english()


def test_english_has_the_heading_of_the_templates_and_the_names_of_commands_too(source):
    assert load("en")["main"] == frontends_own(source)
    assert load("en")["commands"] == source["commands"]
    assert source["main"]["templateWorkflows"]["category"]["ComfyUI-Paceline"] == "Paceline"


def test_every_input_has_a_name_and_no_english_text_breaks_the_frontend(source):
    for name, tree in source.items():
        for path, text in texts(tree):
            assert text, (name, path)


def test_a_sentence_for_users_is_short_and_names_things(source):
    inputs = [one for node in update_locales._nodes().values() for one in node.GET_SCHEMA().inputs]
    phrases = [text for tree in source.values() for _, text in texts(tree)]
    for text in (*phrases, *(one.tooltip for one in inputs if one.tooltip)):
        said = PLACEHOLDER.sub("X", text)
        assert not RIDDLE.search(said), text
        assert too_long(sentences(said)) == []


@pytest.mark.parametrize("language", languages())
def test_a_language_is_complete(source, language):
    present = load(language)
    for name, tree in source.items():
        assert untranslated(tree, present[name]) == []
        assert {path for path, _ in texts(present[name])} == {path for path, _ in texts(tree)}


@pytest.mark.parametrize("language", ["en", *languages()])
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
    nested = data(phrase("not active: {why}", why=steps))
    assert nested["values"]["why"]["template"] == steps.template
    assert data(phrase("{x}", x=float("nan")))["values"] == {"x": "nan"}  # JSON has no such number


def test_a_value_is_translated_only_if_it_is_a_phrase():
    """A preset, a file or a node can have the name of something that is in the table of translations."""
    values = data(phrase("{name}: {what}", name="steps", what=phrase("steps")))["values"]
    assert values["name"] == "steps"
    assert values["what"]["template"] == "steps"


def test_no_headline_that_a_page_shows_is_plain_text():
    found = [line for line in plain_headlines(ROOT) if not line.startswith("optimizers/in_diffusers/")]
    assert found == []


def test_updating_keeps_translations_and_follows_the_code():
    source = {"a": {"name": "An apple", "tooltip": "A red one"}, "b": {"name": "A pear"}}
    translated = {"a": {"name": "Ein Apfel", "gone": "weg"}, "c": {"name": "weg"}}
    assert merged(source, translated) == {"a": {"name": "Ein Apfel", "tooltip": "A red one"}, "b": {"name": "A pear"}}
    assert untranslated(source, translated) == [("a", "tooltip"), ("b", "name")]
    assert update_locales.LOCALES.name == "locales"


NODES = sorted(folder.name for folder in help_pages.DOCS.iterdir())


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("language", help_pages.LANGUAGES)
def test_a_page_is_complete(node, language):
    assert help_pages.problems(node, language) == []


@pytest.mark.parametrize("node", NODES)
def test_a_page_shows_its_node(node):
    folder = help_pages.DOCS / node
    assert f"]({node}/node.png)" in (folder / "en.md").read_text(encoding="utf-8")
    assert (folder / "node.png").is_file()
