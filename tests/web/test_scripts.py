"""The modules of ``web/js`` in Node: their own tests, their types, and what they share with Python."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
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


@pytest.mark.usefixtures("comfy")
def test_the_name_of_a_cells_preset_is_one_that_the_server_takes():
    from paceline.workbench.recipe import require_preset_name

    studies = ["my settings", "测试", "سرعة", "サイズ", "𠮷" * 90, "a/b: c"]
    named = f"""
    const {{ presetName }} = await import({json.dumps((ROOT / "web/js/sweeps.js").as_uri())});
    const labels = ["ratio 0.5", "ratio 0.75"];
    const names = (study) => labels.map((label) => presetName(study, label));
    console.log(JSON.stringify({json.dumps(studies)}.flatMap(names)));
    """
    answer = node(*PAGE, "--input-type=module", "--eval", named, package="linkedom")
    assert answer.returncode == 0, answer.stderr
    names = json.loads(answer.stdout)
    assert names[0] == "my settings - ratio 0.5" and names[2] == "测试 - ratio 0.5"
    assert len({*names}) == len(names)  # no cell's preset takes the place of another's
    assert [require_preset_name("name", name, ()) for name in names] == names
