"""Whoever looks for a file finds it by its name, and no technique leaks into another. That imports point down: lint."""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import check_layers
import pytest
from comfy_host.paths import ROOT

PRODUCT = [*check_layers.LAYERS, "web"]
BESIDE = ["benchmarks", "tests", "tools"]
NODES = ("apply_tome", "compile", "fuse_qkv", "int8", "precision", "reuse_steps", "set_attention_processor")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def sources(*folders: str) -> list[Path]:
    """Return the Python files and scripts of folders, from the root of the checkout; not what npm has put there."""
    found = [path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*")]
    return [path for path in found if path.suffix in (".py", ".js") and "node_modules" not in path.parts]


def test_folders_are_flat_and_imports_short():
    found = sources(*PRODUCT, *BESIDE)
    assert len(found) > 300
    assert [str(path) for path in found if len(path.parents) > 4] == []
    for path in (path for path in sources(*PRODUCT) if path.suffix == ".py"):
        for node in ast.walk(tree_of(ROOT / path)):
            assert not isinstance(node, ast.ImportFrom) or node.level <= 3, f"{path}:{node.lineno}"


def test_no_two_files_have_one_name_and_no_folder_has_one_file():
    named, files = defaultdict(list), defaultdict(set)
    for path in sources(*PRODUCT):
        named[path.name].append(str(path))
        for below, folder in zip(path.parts[1:], path.parents[-2::-1], strict=True):
            files[folder].add(below)
    assert [one for name, one in named.items() if len(one) > 1 and name != "__init__.py"] == []
    assert [str(folder) for folder, below in files.items() if len(below - {"__init__.py"}) < 2] == []


def test_nodes_are_not_named_below_them():
    """A node's id in a string is an arrow that points up, and no import shows it. Docstrings may give examples."""
    ids = re.findall(r'"Paceline([A-Z]\w+)": "', (ROOT / "nodes" / "__init__.py").read_text())
    assert {"ApplyToMe", "FuseQKV"} <= set(ids)
    named = re.compile(rf"\bPaceline({'|'.join(ids)})\b|\b({'|'.join(ids)})\.[a-z]")
    below = ("optimizers", "measure", "service/comfyui")
    for path in (path for layer in below for path in (ROOT / layer).rglob("*.py")):
        statements = [node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Expr)]
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in statements:
                assert not named.search(node.value), f"{path}:{node.lineno}: {node.value}"


def imported_by(path: Path) -> set[Path]:
    """Return the files of the pack that a file imports, also inside of functions; no file that defines nothing."""
    found, module = set[Path](), path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ROOT.joinpath(*module[: -node.level], *(node.module or "").split("."))
            for one in (base, *(base / name.name for name in node.names)):
                found |= {file for file in (one.with_suffix(".py"), one / "__init__.py") if file.is_file()}
    return {file for file in found if len(tree_of(file).body) > 1}


@pytest.mark.parametrize("node", NODES)
def test_a_node_imports_no_other_technique_directly_or_not(node):
    techniques = {path.parent.name for path in (ROOT / "optimizers").glob("*/*_policy.py")}
    techniques |= {"precision_policy", "qkv_fusion"}
    found, new = set[Path](), {ROOT / "nodes" / f"{node}.py"}
    while new:
        found |= new
        new = {file for one in new for file in imported_by(one)} - found
    assert len({name for path in found for name in (path.parent.name, path.stem)} & techniques) == 1


def test_the_map_names_files_that_exist():
    text = "".join((ROOT / name).read_text() for name in ("ARCHITECTURE.md", "CONTRIBUTING.md"))
    named = set(re.findall(r"[\w./]+\.(?:py|md|json|ts|js|sh|toml)\b|\b[\w/]+/(?=[`\s,])", text))
    assert {"run/stack.py", "families.py", "api.py", "token_merging/"} <= named
    named -= {"/en.md", "_policy.py", "tests/artifacts/"}  # two behind a placeholder, and what tests make
    known: list[str] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            name for name in folders if name not in {".git", ".cache", ".venv", "node_modules", "__pycache__"}
        ]
        known += [f"{folder}/{name}/" for name in folders] + [f"{folder}/{name}" for name in files]
    assert not {name for name in named if not any(path.endswith(f"/{name}") for path in known)}


def test_a_technique_is_read_in_ten_minutes():
    rows = re.findall(r"^\| .+? \| `(\w+/)`: (.+?) \| (.+?) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    policies = (ROOT / "optimizers").glob("*/*_policy.py")
    assert {f"{path.parent.name}/" for path in policies} == {row[0] for row in rows}
    for folder, own, host in rows:
        files = [ROOT / "optimizers" / folder / name for name in re.findall("`(.+?)`", own)]
        files += [ROOT / "optimizers" / "in_comfyui" / name for name in re.findall("`(.+?)`", host)]
        assert sum(len(path.read_text().splitlines()) for path in files) <= 950, folder


def test_programs_beside_the_pack_import_names_that_are_there():
    """Type checking ends with the pack, and not every program runs in a test."""
    imports = [
        (path, node.module.split(".")[1:], name.name)
        for path in sources(*check_layers.PROGRAMS)
        if path.suffix == ".py"
        for node in ast.walk(tree_of(ROOT / path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paceline.")
        for name in node.names
    ]
    assert len(imports) > 30
    assert [(str(path), name) for path, module, name in imports if name not in names_in(module)] == []


def names_in(module: list[str]) -> set[str]:
    """Return what can be imported from a module of the pack: its files, and what it binds at the top."""
    path = ROOT.joinpath(*module)
    found = {one.stem for one in path.glob("*")}
    source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    for node in tree_of(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
        else:
            found |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return found
