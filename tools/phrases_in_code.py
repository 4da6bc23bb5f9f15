"""Find the headlines in the sources: what ``web/js/badges/headlines.js`` looks up to say them in other languages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("optimizers", "measure", "service", "nodes")

_MARKED = ("phrase", "translatable")
_ERRORS = ("CannotHelp", "UnsupportedModel", "NothingGained", "BackendUnavailable")


def phrases_in(root: Path) -> list[str]:
    """Return every template and every text that is looked up as it is, as they stand."""
    found: dict[str, None] = {}
    for path, call in _calls(root):
        if not (isinstance(call.func, ast.Name) and call.func.id in _MARKED and call.args):
            continue
        if isinstance(call.args[0], ast.Constant):
            text = str(call.args[0].value)
            found |= {text: None} if any(letter.isalpha() for letter in _outside(text)) else {}
        elif call.func.id == "phrase" and isinstance(call.args[0], ast.Name):
            raise ValueError(f"{path}, line {call.lineno}: the template must stand in the call to be found here.")
    return list(found)


def plain_headlines(root: Path) -> list[str]:
    """Return the headlines, with their files, that are plain text: no language can be looked up for them."""
    found = []
    for path, call in _calls(root):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        headlines = call.args[1:2] if name == "Summary" else call.args[2:3] if name in _ERRORS else []
        headlines += [one.value for one in call.keywords if one.arg in ("headline", "brief")]
        found += [f"{path}: {ast.unparse(text)}" for text in headlines if _is_sentence(text)]
    return found


def _calls(root: Path) -> Iterator[tuple[str, ast.Call]]:
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield path.relative_to(root).as_posix(), node


def _is_sentence(value: ast.expr) -> bool:
    """Return whether a value is a text of several words that stands in the code."""
    parts = value.values if isinstance(value, ast.JoinedStr) else [value]
    text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
    return " " in text.strip()


def _outside(template: str) -> str:
    """Return what is not the name or the format of a placeholder; its words count."""
    from paceline.optimizers.core.phrases import PLACEHOLDER

    return PLACEHOLDER.sub(lambda match: match[3] or "", template)
