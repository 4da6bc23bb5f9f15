"""Everything of ``make trust``, one part after the other, and docs/TRUST.md from it.

    .venv/bin/python tests/trust/run_all.py --minutes 120
    .venv/bin/python tests/trust/run_all.py --only graphs --show --first 42 --count 1

The minutes are shared out among the parts. Each part keeps its results in a folder, so that one of them can be run
again on its own, which has all the minutes then: ``--only soak``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / folder) for folder in ("tests", "tests/trust")]
    from comfy_host import pack, standins

    standins.install()
    pack.load_pack()

import report
from bad_inputs import give_bad_inputs
from comfy_host.paths import cache_dir, commit
from planted import judge_planted
from run_faults import try_faults
from run_graphs import draw_graphs
from soak import run_soak
from webui_requests import ask_hosts, hosts_here


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=180.0, help="of all parts together")
    parser.add_argument("--first", type=int, default=0, help="seed of the first random graph or request")
    parser.add_argument("--count", type=int, help="graphs or requests of each part")
    parser.add_argument("--only", choices=report.TITLES, help="run one part, and keep the results of the others")
    parser.add_argument("--show", action="store_true", help="print what was found, and leave docs/TRUST.md as it is")
    parser.add_argument("--packs", type=Path, nargs="+", default=[], help="folders of other packs to draw graphs with")
    parser.add_argument("--results", type=Path, default=cache_dir() / "trust")
    given = parser.parse_args()
    tried, first, count = commit(), given.first, given.count

    def minutes(share: float) -> float:
        return given.minutes * (1.0 if given.only else share)

    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "graphs": lambda: draw_graphs(first, count or 1000, minutes(0.25), 0.1),
        "steps": lambda: draw_graphs(first, count or 500, minutes(0.1), 0.1, steps=True),
        "inductor": lambda: draw_graphs(first, count or 60, minutes(0.1), 1.0, "inductor"),
        "packs": lambda: draw_graphs(first, count or 300, minutes(0.05), 0.1, packs=given.packs),
        "verdicts": lambda: judge_planted(1000),
        "bad_inputs": lambda: give_bad_inputs(minutes(0.15)),
        "faults": lambda: try_faults(9 if given.minutes > 60 else 3, 5 if given.minutes > 60 else 2, minutes(0.25)),
        "soak": lambda: run_soak(32, minutes(min(0.15, 30.0 / given.minutes)), 2000),
        "webui": lambda: ask_hosts(hosts_here(), first, count or 200, minutes(0.15)),
    }
    missing = {"packs": not given.packs, "webui": not hosts_here()}
    given.results.mkdir(parents=True, exist_ok=True)
    wrong = False
    for name, part in parts.items():
        if given.only in (None, name) and not missing.get(name):
            found = {**part(), "commit": tried}
            wrong |= bool(found["wrong"])
            if given.show:
                print(json.dumps(found, indent=1))
            else:
                (given.results / f"{name}.json").write_text(json.dumps(found, indent=1))
    if given.show:
        return wrong
    report.write(given.results)
    print(f"wrote {report.DOCUMENT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
