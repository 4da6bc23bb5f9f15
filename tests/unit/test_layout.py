"""Whoever looks for a file finds it by its name: flat folders, short imports, no two files of one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import check_layers
from comfy_host.paths import ROOT

PRODUCT = [*check_layers.LAYERS, "web"]
BESIDE = ["benchmarks", "tests", "tools"]


def sources(*folders: str) -> list[Path]:
    """Return the Python files and scripts of folders, from the root of the checkout; not what npm has put there."""
    found = [path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*")]
    return [path for path in found if path.suffix in (".py", ".js") and "node_modules" not in path.parts]


def test_no_folder_is_deeper_than_three():
    found = sources(*PRODUCT, *BESIDE)
    assert len(found) > 300
    assert [str(path) for path in found if len(path.parents) > 4] == []


def test_no_import_has_more_than_three_dots():
    for path in (path for path in sources(*PRODUCT) if path.suffix == ".py"):
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.ImportFrom) or node.level <= 3, f"{path}:{node.lineno}"


def test_no_two_files_have_one_name():
    named = defaultdict(list)
    for path in sources(*PRODUCT):
        named[path.name].append(str(path))
    assert [files for name, files in named.items() if len(files) > 1 and name != "__init__.py"] == []


def test_no_folder_has_one_file():
    files = defaultdict(set)
    for path in sources(*PRODUCT):
        for below, folder in zip(path.parts[1:], path.parents[-2::-1], strict=True):
            files[folder].add(below)
    assert [str(folder) for folder, below in files.items() if len(below - {"__init__.py"}) < 2] == []
