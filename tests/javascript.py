"""Node, with what npm has installed for the tests of ``web/``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from comfy_host.paths import ROOT
from needs import missing

PACKAGES = ROOT / "tests" / "browser"


def node(*command: str | Path, package: str = "typescript") -> subprocess.CompletedProcess[str]:
    """Run Node with arguments where npm's packages are, of which the command needs one."""
    if shutil.which("node") is None:
        missing("Node is not installed")
    if not (PACKAGES / "node_modules" / package).is_dir():
        missing(f"{package} is not installed: run `npm ci` in tests/browser")
    return subprocess.run(["node", *command], cwd=PACKAGES, capture_output=True, text=True, timeout=300)
