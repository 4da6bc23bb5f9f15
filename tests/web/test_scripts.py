"""The modules of ``web/js`` in Node: their own tests, their types, and what they share with Python."""

from __future__ import annotations

import re
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


PAGE = ("--import", Path(__file__).with_name("page.mjs").as_uri())
"""What Node imports first: stand-ins for the browser and for ComfyUI's modules."""


def test_the_modules_pass_their_own_tests():
    files = sorted(Path(__file__).parent.glob("*.test.mjs"))
    answer = node(*PAGE, "--test", "--test-reporter=tap", *files, package="linkedom")
    passed = re.search(r"^# pass (\d+)$", answer.stdout, re.MULTILINE)
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr
    assert passed and int(passed[1]) > len(files)


def test_the_types_are_right():
    answer = node("node_modules/typescript/bin/tsc", "--project", "tsconfig.json")
    assert answer.returncode == 0, answer.stdout
