"""Check that imports only point down the layers: the contracts of import-linter in pyproject.toml.

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

LAYERS = ("core", "optimizers", "workbench", "server", "nodes")


def check(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the layers of ``checkout``, with the contracts of its ``pyproject.toml``."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "paceline"
        package.mkdir()
        for name in LAYERS:
            shutil.copytree(checkout / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(checkout / "__init__.py", package)
        return subprocess.run(
            [Path(sys.executable).with_name("lint-imports"), "--config", checkout / "pyproject.toml", "--no-cache"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )


if __name__ == "__main__":
    done = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve())
    print(done.stdout + done.stderr)
    sys.exit(done.returncode)
