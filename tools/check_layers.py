"""Check that imports only point down the layers (import-linter, contracts in pyproject.toml), and never in a circle.

It looks for circles in ``benchmarks/``, ``tests/`` and ``tools/`` too, where files import each other by place.

    python tools/check_layers.py [FOLDER]

The checkout is the package ``paceline``, but its folder may have any name, and its root must not be importable (ComfyUI
owns the name ``nodes``). So the layers are copied into a temporary folder of that name, where import-linter reads them.
"""

from __future__ import annotations

import ast
import graphlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("benchmarks", "tests", "tools")
"""Folders beside the package whose files import each other."""

LAYERS = ("optimizers", "measure", "service", "nodes", "scripts")

# Grimp is what import-linter reads imports with. Those below TYPE_CHECKING count.
_CIRCLES = """
import sys, grimp
graph = grimp.build_graph("paceline", cache_dir=None)
pairs = ((a, b) for a in sorted(graph.modules) for b in graph.find_modules_directly_imported_by(a))
found = {frozenset(chain): chain for a, b in pairs if (chain := graph.find_shortest_chain(b, a))}
for chain in found.values():
    print("a circle of imports:", " -> ".join((chain[-1], *chain)))
print(len(graph.modules), "files,", len(found), "circles of imports")
sys.exit(bool(found))
"""


def circle(folder: Path) -> list[str]:
    """Return the modules of a circle of imports among the files below ``folder``, which is on ``sys.path``; or none."""
    files = {path.relative_to(folder).with_suffix("").parts: path for path in folder.rglob("*.py")}
    imports = {parts: set(_imported(path, parts)) & files.keys() for parts, path in files.items()}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as found:
        return [".".join(parts) for parts in found.args[1]]
    return []


def _imported(path: Path, module: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the modules that a file could import, those inside of functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (tuple(name.name.split(".")) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            named = tuple(node.module.split(".")) if node.module else ()
            base = (*module[: -node.level], *named) if node.level else named
            yield base
            yield from ((*base, name.name) for name in node.names)


def check(checkout: Path) -> tuple[bool, str]:
    """Return whether the layers of ``checkout`` keep the contracts of its ``pyproject.toml``, and what was found."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "paceline"
        package.mkdir()
        for name in LAYERS:
            shutil.copytree(checkout / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(checkout / "__init__.py", package)
        linter = [Path(sys.executable).with_name("lint-imports"), "--config", checkout / "pyproject.toml", "--no-cache"]
        environment = {**os.environ, "PYTHONPATH": folder, "NO_COLOR": "1"}
        done = [
            subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            for command in (linter, [sys.executable, "-c", _CIRCLES])
        ]
    said = "".join(one.stdout + one.stderr for one in done)
    for name in PROGRAMS:
        if found := circle(checkout / name):
            return False, f"{said}a circle of imports in {name}: {' -> '.join(found)}\n"
    return not any(one.returncode for one in done), said


if __name__ == "__main__":
    kept, said = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve())
    print(said)
    sys.exit(not kept)
