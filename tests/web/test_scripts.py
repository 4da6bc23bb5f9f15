"""The modules of ``web/js`` in Node: their own tests. Their types: ``npm run --prefix tests/browser check``."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from comfy_host.paths import ROOT
from needs import missing

PACKAGES = ROOT / "tests" / "browser"


PAGE = ("--import", Path(__file__).with_name("page.mjs").as_uri())
"""What Node imports first: stand-ins for the browser and for ComfyUI's modules."""


def test_the_modules_pass_their_own_tests():
    if shutil.which("node") is None:
        missing("Node is not installed")
    if not (PACKAGES / "node_modules" / "linkedom").is_dir():
        missing("linkedom is not installed: run `npm ci` in tests/browser")
    files = sorted(Path(__file__).parent.glob("*.test.mjs"))
    command = ["node", *PAGE, "--test", "--test-reporter=tap", *files]
    answer = subprocess.run(command, cwd=PACKAGES, capture_output=True, text=True, timeout=300)
    passed = re.search(r"^# pass (\d+)$", answer.stdout, re.MULTILINE)
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr
    assert passed and int(passed[1]) > len(files)
