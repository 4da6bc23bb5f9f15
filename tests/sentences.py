"""Sentences that users read, of a text or of a page in Markdown, and how long one may be."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_WORDS = 25
END = re.compile(r"(?<=[.;:?!])[*)\"]*\s")
"""A clause after a semicolon or a colon counts apart."""


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text without markup."""
    yield from END.split(text)


def sentences_of_page(page: str) -> Iterator[str]:
    """Yield those of Markdown: of paragraphs, items, headings and cells, without code, and of links the words alone."""
    page = re.sub(r"```.*?```|^ {4,}\S.*?$", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)
    page = re.sub(r"`[^`]*`", "X", page)
    page = re.sub(r"\||^\s*(?:[-*]|\d+\.|#+) ", "\n\n", page, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n", page):
        yield from sentences(" ".join(block.split()))


def too_long(found: Iterator[str]) -> list[str]:
    """Return the sentences with more words than one may have."""
    return [one for one in found if len(one.split()) > MOST_WORDS]
