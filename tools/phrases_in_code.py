"""Find the texts of reports in the sources: what ``web/js/said.js`` looks up to say them in other languages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("core", "optimizers", "workbench", "nodes")

_MARKED = ("phrase", "translatable", "traced")
_ERRORS = ("InvalidSetting", "CannotHelp", "UnsupportedModel", "NothingGained", "WrongObject", "BackendUnavailable")
_SAID = (*_ERRORS, "CompilationFailed", "CompilationCancelled", "Summary", "fall_back", "note", "count_eager", "say")
"""What is called with a sentence that reaches the screen."""

_COUNTS = ("counts", "_COUNTS")
"""Names that hold the names of numbers: keys of a dict, or a tuple of them."""


def phrases_in(root: Path) -> list[str]:
    """Return every template, every text that is looked up as it is, and every name of a number, as they stand."""
    found: dict[str, None] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= dict.fromkeys(text for text in _texts(tree) if any(letter.isalpha() for letter in _outside(text)))
    return list(found)


def plain_sentences(root: Path) -> dict[str, list[str]]:
    """Return by file the sentences that are handed to what shows them, and that no language can be looked up for."""
    found: dict[str, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and _name(node.func) in _SAID:
                    name = path.relative_to(root).as_posix()
                    found.setdefault(name, []).extend(map(ast.unparse, filter(_is_sentence, node.args)))
    return {name: sentences for name, sentences in found.items() if sentences}


def _name(function: ast.expr) -> str:
    return str(getattr(function, "id", None) or getattr(function, "attr", ""))


def _is_sentence(value: ast.expr) -> bool:
    """Return whether a value is a text of several words that stands in the code."""
    parts = value.values if isinstance(value, ast.JoinedStr) else [value]
    text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
    return " " in text.strip()


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from _of_call(node.func.id, node.args)
        elif isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id in _COUNTS for one in node.targets
        ):
            yield from _names(node.value)


def _of_call(name: str, arguments: list[ast.expr]) -> Iterator[str]:
    if name in _MARKED and arguments:
        if isinstance(arguments[0], ast.Name) and name == "phrase":
            raise ValueError(f"phrase({arguments[0].id}, ...): the template must stand in the call to be found here.")
        if isinstance(arguments[0], ast.Constant):
            yield str(arguments[0].value)
    elif name == "Summary" and len(arguments) > 2:
        yield from _names(arguments[2])


def _names(value: ast.expr) -> Iterator[str]:
    """Yield the names of numbers as they are shown."""
    entries = value.keys if isinstance(value, ast.Dict) else value.elts if isinstance(value, ast.Tuple) else ()
    for entry in entries:
        if isinstance(entry, ast.Constant):
            yield str(entry.value).replace("_", " ")


def _outside(template: str) -> str:
    """Return what is not the name or the format of a placeholder; its words count."""
    from paceline.core.phrases import PLACEHOLDER

    return PLACEHOLDER.sub(lambda match: match[3] or "", template)
