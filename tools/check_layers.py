"""Check that imports only point down the layers (import-linter, contracts in pyproject.toml), and never in a circle.

    python tools/check_layers.py [FOLDER]

The checkout is the package ``paceline``, but its folder may have any name, and its root must not be importable (ComfyUI
owns the name ``nodes``). So the layers are copied into a temporary folder of that name, where import-linter reads them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LAYERS = ("core", "optimizers", "workbench", "server", "nodes", "scripts")

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
    return not any(one.returncode for one in done), "".join(one.stdout + one.stderr for one in done)


if __name__ == "__main__":
    kept, said = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve())
    print(said)
    sys.exit(not kept)
