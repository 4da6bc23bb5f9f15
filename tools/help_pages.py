"""Compare the translated help pages with the English ones: ``python tools/help_pages.py [LANGUAGE ...]``.

A translation says the same in other words. So what is not words must be the same and in the same order: headings by
their level, tables by their rows and columns, lists, pictures and links by where they lead. Code and numbers must be
the same in any order, because sentences turn around. A page that falls behind the English one mostly differs in one
of these.

Pages of languages that are written from right to left stand in ``<div dir="rtl">``, which the frontend keeps.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "web" / "docs"
LANGUAGES = ("ar", "es", "ja", "th", "zh")
RIGHT_TO_LEFT = ("ar",)

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*")


def outline(page: str) -> list[str]:
    """Return what must be the same in every language, one entry each, in the order of the page."""
    found = []
    for line in _without_direction(page).splitlines():
        if heading := re.match(r"(#+) ", line):
            found.append(f"heading {len(heading[1])}")
        elif line.startswith("|"):
            found.append(f"row of {line.count('|') - line.count(chr(92) + '|') - 1}")
        elif re.match(r"\s*(?:[-*]|\d+\.) ", line):
            found.append("item")
        elif line.startswith("```"):
            found.append("block of code")
        found += [f"link to {target}" for target in _LINK.findall(line)]
    return found


def facts(page: str) -> Counter[str]:
    """Return how often the page has each piece of code and each number."""
    page = re.sub(r"^\s*\d+\. ", "", _LINK.sub("]", page), flags=re.MULTILINE)
    code = _CODE.findall(page)
    return Counter([f"`{piece}`" for piece in code] + _NUMBER.findall(_CODE.sub("", page)))


def differences(english: str, translated: str) -> list[str]:
    """Return what the translated page has too much (+) or too little (-), one line each."""
    ours, theirs = outline(english), outline(translated)
    found = []
    if ours != theirs:
        same = [a == b for a, b in zip(ours, theirs, strict=False)]
        at = same.index(False) if False in same else len(same)
        found.append(f"outline, entry {at + 1}: English has {ours[at : at + 3]}, the translation {theirs[at : at + 3]}")
    missing, extra = facts(english) - facts(translated), facts(translated) - facts(english)
    return found + [f"- {fact}" for fact in missing.elements()] + [f"+ {fact}" for fact in extra.elements()]


def problems(node: str, language: str) -> list[str]:
    """Return what is wrong with a page; an empty list for a good one."""
    english, path = (DOCS / node / "en.md").read_text(encoding="utf-8"), DOCS / node / f"{language}.md"
    if not path.exists():
        return [f"there is no {path.name}"]
    page = path.read_text(encoding="utf-8")
    found = differences(english, page)
    if (language in RIGHT_TO_LEFT) != page.startswith('<div dir="rtl">\n\n'):
        found.append('a page from right to left starts with <div dir="rtl"> and an empty line, others do not')
    return found


def _without_direction(page: str) -> str:
    return re.sub(r'^<div dir="rtl">$|^</div>$', "", page, flags=re.MULTILINE)


def main(chosen: list[str]) -> int:
    """Print what is wrong, page by page."""
    wrong = 0
    for folder in sorted(DOCS.iterdir()):
        for language in chosen or LANGUAGES:
            if found := problems(folder.name, language):
                wrong += 1
                print(f"{folder.name}/{language}.md", *found, sep="\n    ")
    print(f"{wrong} pages differ from the English ones")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
