"""benchmarks/RESULTS.md says what the files in benchmarks/results say."""

from __future__ import annotations

import importlib.util
import json

import pytest
from comfy_host.paths import ROOT

FILES = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.fixture(scope="module")
def render():
    spec = importlib.util.spec_from_file_location("render_results", ROOT / "benchmarks" / "pages" / "render_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_up_to_date(render):
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    assert text == render.page(), "run python benchmarks/pages/render_results.py"


def test_every_row_is_there_with_its_machine_and_command(render):
    text = render.page()
    assert FILES
    for path in FILES:
        content = json.loads(path.read_text(encoding="utf-8"))
        part = render.section(path, render.common_words(FILES))
        assert part in text
        assert content["command"] in part
        assert content["hardware"]["cpu"] in part
        assert content["versions"]["torch"] in part
        for row in content["rows"]:
            assert f"| {row['name']} |" in part
            assert f"| **{row['work']}** |" in part
