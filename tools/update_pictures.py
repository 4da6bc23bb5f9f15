"""Take the pictures of the repository anew: ``python tools/update_pictures.py``.

The thumbnails of the example workflows, the nodes in the help pages, and the README's pictures are screenshots of
ComfyUI's real page in Chromium, taken by the browser tests on their way. They show what was measured while they were
taken, so nothing else should run on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = tuple(f"test_{name}.py" for name in ("compare", "faster", "nodes", "speed", "sweep", "templates"))


def main(names: list[str]) -> int:
    """Run the browser tests that take pictures, or only the named ones."""
    files = [str(ROOT / "tests" / "browser" / name) for name in names or TESTS]
    environment = os.environ | {"PACELINE_PICTURES": "1", "CI": "1"}
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *files], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
