"""Translated help pages say all that the English ones say."""

from __future__ import annotations

import help_pages
import pytest

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
