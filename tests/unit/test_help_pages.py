"""Translated help pages say all that the English ones say."""

from __future__ import annotations

import help_pages
import pytest

NODES = sorted(folder.name for folder in help_pages.DOCS.iterdir())
PAGE = """# Title

Takes `latent`, 2 to 4 times faster. See [here](https://example.org).

| Input | Meaning |
|---|---|
| `a` | 1,000 tokens |
"""


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("language", help_pages.LANGUAGES)
def test_a_page_is_complete(node, language):
    assert help_pages.problems(node, language) == []


def test_a_page_in_another_order_of_words_is_the_same():
    turned = PAGE.replace("Takes `latent`, 2 to 4 times faster.", "4 (2) x: `latent`.")
    assert help_pages.differences(PAGE, turned) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("# Title", "Title", "outline"),
        ("# Title", "## Title", "outline"),
        ("https://example.org", "https://example.com", "outline"),
        ("| `a` | 1,000 tokens |\n", "", "outline"),
        ("| `a` | 1,000 tokens |", "| `a` 1,000 tokens |", "outline"),
        ("1,000", "1,500", "- 1,000"),
        ("`latent`", "`image`", "- `latent`"),
        ("2 to 4 times", "4 times", "- 2"),
        ("tokens", "tokens of 16", "+ 16"),
    ],
)
def test_what_falls_behind_is_seen(before, after, said):
    assert any(line.startswith(said) for line in help_pages.differences(PAGE, PAGE.replace(before, after)))


@pytest.mark.parametrize("node", NODES)
def test_a_page_shows_its_node(node):
    folder = help_pages.DOCS / node
    assert f"]({node}/node.png)" in (folder / "en.md").read_text(encoding="utf-8")
    assert (folder / "node.png").is_file()
