"""Fuzz the parsers of user files: the tests of ``tests/unit/test_fuzz_parsers.py`` on input that coverage guides.

    python tools/fuzz.py --seconds 300

With atheris installed (pip install atheris; it has no wheels for every Python) libFuzzer makes the input; otherwise
Hypothesis makes as many random examples as fit into the time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "unit" / "test_fuzz_parsers.py"

_PROGRAM = """
import sys, atheris
sys.path[:0] = {folders!r}
from comfy_host import pack, standins
standins.install()
with atheris.instrument_imports(include=["paceline", "json"]):
    pack.load_pack()
    import test_fuzz_parsers as tests
test = getattr(tests, {name!r})
atheris.Setup([{name!r}, "-max_total_time={seconds}", "-verbosity=0", "-print_final_stats=1"],
              test.hypothesis.fuzz_one_input)
atheris.Fuzz()
"""


def main() -> int:
    """Run every fuzzer and return how many have found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300, help="for each parser")
    parser.add_argument("--only", default="", help="part of the name of a test")
    options = parser.parse_args()
    if find_spec("atheris") is None:
        print("atheris is not installed: Hypothesis makes random examples instead")
        environment = {**os.environ, "PACELINE_FUZZ": str(20 * options.seconds)}
        command = [sys.executable, "-m", "pytest", "-q", str(TESTS), "-k", options.only or "test"]
        return subprocess.run(command, env=environment, cwd=ROOT).returncode
    lines = TESTS.read_text(encoding="utf-8").splitlines()
    marked = [number for number, line in enumerate(lines) if line == "@fuzzed"]
    names = [next(line for line in lines[number:] if line.startswith("def "))[4:].split("(")[0] for number in marked]
    folders = [str(TESTS.parent), str(ROOT / "tests"), str(ROOT / "tools")]
    found = 0
    for name in names:
        if options.only not in name:
            continue
        print(f"== {name}", flush=True)
        program = _PROGRAM.format(folders=folders, name=name, seconds=options.seconds)
        found += subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode != 0
    print(f"{found} of {len(names)} fuzzers found something")
    return found


if __name__ == "__main__":
    sys.exit(main())
