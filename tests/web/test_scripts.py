"""The modules of ``web/js`` in Node: their own tests, their types, and what they share with Python."""

from __future__ import annotations

import re
from pathlib import Path

from javascript import node

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
