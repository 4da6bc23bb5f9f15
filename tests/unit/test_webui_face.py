"""What the face for Stable Diffusion WebUI shows is translated, in the words of the rest of the pack."""

from __future__ import annotations

import ast
import json

import pytest
from comfy_host.paths import ROOT
from paceline.optimizers.hosts.webui.choices import AS_ABOVE, CHOICES

LANGUAGES = {"ar_AR": "ar", "es_ES": "es", "ja_JP": "ja", "th_TH": "th", "zh_CN": "zh"}


def labels() -> set[str]:
    """Return the labels of all controls and buttons but the pack's own name."""
    tree = ast.parse((ROOT / "scripts" / "paceline.py").read_text())
    words = [word for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords]
    found = {word.value.value for word in words if word.arg == "label" and isinstance(word.value, ast.Constant)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call for call in calls if ast.unparse(call.func) in ("InputAccordion", "gr.Accordion", "gr.Button")]
    found |= {call.args[0].value for call in named if isinstance(call.args[0].value, str)}
    return found - {"Paceline"}


def test_the_languages_are_those_of_the_pack():
    assert {path.stem for path in (ROOT / "localizations").glob("*.json")} == set(LANGUAGES)


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_label_and_choice_is_translated(code):
    words = json.loads((ROOT / "localizations" / f"{code}.json").read_text())
    assert set(words) == {*labels(), *CHOICES, AS_ABOVE}
    assert not any(english == there for english, there in words.items())
    theirs = json.loads((ROOT / "locales" / LANGUAGES[code] / "main.json").read_text())["paceline"]
    assert words["Hardly visible"] == theirs["choice_balanced"]
    nodes = json.loads((ROOT / "locales" / LANGUAGES[code] / "nodeDefs.json").read_text())
    assert words["Reuse Steps: budget"].startswith(nodes["PacelineReuseSteps"]["display_name"])
