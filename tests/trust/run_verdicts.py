"""Judge planted faults as Compare Models does, and count the verdicts that are wrong.

    .venv/bin/python tests/trust/run_verdicts.py --runs 1000

Nothing is sampled: times are simulated with the noise of seven kinds of machines, pictures are drawn smooth.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / folder) for folder in ("tools", "tests", "tests/trust")]
    from comfy_host import pack

    pack.load_pack()

ROUNDS = (3, 5, 10)
UNTIL_CLEAR = (9, 3)
"""At most so many rounds; from the second number on the times are looked at after each."""


def judge_planted(runs: int) -> dict[str, Any]:
    """Judge each fault ``runs`` times, times on each machine with each number of rounds; return what was found."""
    from planted import FALSE, FAULTS, MACHINES

    started = time.monotonic()
    times = {name: {f"{gain:.2f}": _times(name, gain, runs) for gain in FALSE} for name in MACHINES}
    clear = {name: {f"{gain:.2f}": _times(name, gain, runs, UNTIL_CLEAR) for gain in FALSE} for name in MACHINES}
    pictures = {name: sum(not right(seed) for seed in range(runs)) for name, right in FAULTS.items()}
    minutes = (time.monotonic() - started) / 60
    found = {"times": times, "until_clear": clear, "pictures": pictures}
    return {"runs": runs, "rounds": ROUNDS, **found, "minutes": minutes}


def _times(machine: str, gain: float, runs: int, *plans: tuple[int, int]) -> dict[str, int]:
    from planted import FALSE, verdicts

    given = plans or tuple((rounds, 0) for rounds in ROUNDS)
    found = sum((verdicts(gain, most, machine, runs, least) for most, least in given), Counter[str]())
    wrong = sum(found[state] for state in FALSE[gain])
    return {"wrong": wrong, "uncertain": found["unknown"], "of": found.total()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="of each fault")
    print(json.dumps(judge_planted(parser.parse_args().runs), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
