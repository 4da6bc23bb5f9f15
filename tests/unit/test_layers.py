"""The map of the layers names what is there. That imports point down: `make lint`."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import check_layers
from comfy_host.paths import ROOT


def test_nodes_are_not_named_below_them():
    """A node's id in a string is an arrow that points up, and no import shows it. Docstrings may give examples."""
    ids = re.findall(r'"Paceline([A-Z]\w+)": "', (ROOT / "nodes" / "__init__.py").read_text())
    assert {"ApplyToMe", "FuseQKV"} <= set(ids)
    named = re.compile(rf"\bPaceline({'|'.join(ids)})\b|\b({'|'.join(ids)})\.[a-z]")
    below = ("optimizers", "measure", "service/comfyui")
    for path in (path for layer in below for path in (ROOT / layer).rglob("*.py")):
        tree = ast.parse(path.read_text())
        statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in statements:
                assert not named.search(node.value), f"{path}:{node.lineno}: {node.value}"


def test_the_map_names_files_that_exist():
    text = "".join((ROOT / name).read_text() for name in ("ARCHITECTURE.md", "CONTRIBUTING.md"))
    named = set(re.findall(r"[\w./]+\.(?:py|md|json|ts|js|sh|toml)\b|\b[\w/]+/(?=[`\s,])", text))
    assert {"run/stack.py", "families.py", "api.py", "token_merging/"} <= named
    named -= {"/en.md", "_policy.py", "tests/artifacts/"}  # two behind a placeholder, and what tests make
    known = [path.relative_to(ROOT).as_posix() + "/" * path.is_dir() for path in tracked()]
    missing = {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in known)}
    assert not missing


def test_a_technique_is_read_in_ten_minutes():
    rows = re.findall(r"^\| .+? \| `(\w+/)`: (.+?) \| (.+?) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    policies = (ROOT / "optimizers").glob("*/*_policy.py")
    assert {f"{path.parent.name}/" for path in policies} == {row[0] for row in rows}
    for folder, own, host in rows:
        files = [ROOT / "optimizers" / folder / name for name in re.findall("`(.+?)`", own)]
        files += [ROOT / "optimizers" / "in_comfyui" / name for name in re.findall("`(.+?)`", host)]
        assert sum(len(path.read_text().splitlines()) for path in files) <= 950, folder


def tracked() -> list[Path]:
    """Return the files and folders of the checkout that are not generated."""
    skipped = {".git", ".cache", ".venv", "node_modules", "__pycache__"}
    found: list[Path] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in skipped]
        found += [Path(folder, name) for name in (*folders, *files)]
    return found


def test_programs_beside_the_pack_import_names_that_are_there():
    """Type checking ends with the pack, and not every program runs in a test."""
    imports = [
        (path, node.module.split("."), name.name)
        for folder in check_layers.PROGRAMS
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paceline.")
        for name in node.names
    ]
    assert len(imports) > 30
    missing = [(str(path), name) for path, module, name in imports if name not in _names_in(module[1:])]
    assert missing == []


def _names_in(module: list[str]) -> set[str]:
    """Return what can be imported from a module of the pack: its files, and what it binds at the top."""
    path = ROOT.joinpath(*module)
    found = {one.stem for one in path.glob("*")}
    source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
        else:
            found |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return found
