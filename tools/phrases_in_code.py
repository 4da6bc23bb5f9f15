"""Find the texts of reports in the sources: what ``web/js/said.js`` looks up to say them in other languages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("core", "optimizers", "workbench", "nodes")

_MARKED = ("phrase", "translatable", "traced")
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
