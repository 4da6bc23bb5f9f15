"""What a node imports, directly or not: a technique that leaks into another one shows here."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from comfy_host.paths import ROOT

AT_MOST = {
    "apply_tome": (38, 5000),
    "compile": (48, 6350),
    "fuse_qkv": (25, 3150),
    "int8": (35, 4600),
    "precision": (29, 4050),
    "reuse_steps": (33, 4350),
    "set_attention_processor": (29, 4050),
}
"""Files and lines by the node's file. A new file of the technique's own is reason enough to raise its number."""


@cache
def imported_by(path: Path) -> frozenset[Path]:
    """Return the files of the pack that a file imports, also inside of functions and for types.

    Not the packages above them, and no file that defines nothing.
    """
    found, module = set[Path](), path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ROOT.joinpath(*module[: -node.level], *(node.module or "").split("."))
            for one in (base, *(base / name.name for name in node.names)):
                found |= {file for file in (one.with_suffix(".py"), one / "__init__.py") if file.is_file()}
    return frozenset(file for file in found if len(ast.parse(file.read_text("utf-8")).body) > 1)


def closure(path: Path) -> set[Path]:
    """Return a file and all that it imports, directly or not."""
    found, new = set[Path](), {path}
    while new:
        found |= new
        new = {file for one in new for file in imported_by(one)} - found
    return found


@pytest.mark.parametrize("node", AT_MOST)
def test_a_node_imports_no_more_than_it_needs(node):
    found = closure(ROOT / "nodes" / f"{node}.py")
    names = sorted(path.relative_to(ROOT).as_posix() for path in found)
    files, lines = AT_MOST[node]
    assert len(found) <= files, names
    assert sum(len(path.read_text("utf-8").splitlines()) for path in found) <= lines, names


def test_a_node_imports_no_other_technique():
    own = {path.parent.name for path in (ROOT / "optimizers").glob("*/*_policy.py")}
    own |= {"precision_policy", "qkv_fusion"}
    assert {"step_reuse", "token_merging"} <= own
    for node in AT_MOST:
        files = closure(ROOT / "nodes" / f"{node}.py")
        named = {name for path in files for name in (path.parent.name, path.stem)} & own
        assert len(named) == 1, (node, named)
