"""Many clients on one server for many minutes.

.venv/bin/python tests/trust/run_soak.py --clients 32 --minutes 30
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / folder) for folder in ("tools", "tests", "tests/trust")]
    from comfy_host import standins

    standins.install()

from hosting import trust_server, write_loras
from soak import grows, soak
from tabs import browser_tabs


def run_soak(clients: int, minutes: float, most: int) -> dict[str, Any]:
    """Run it and return what was found, for the table in docs/TRUST.md."""
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        trust_server(write_loras(Path(folder))) as server,
        browser_tabs(server) as tabs,
    ):
        done = soak(server, clients, minutes, most, tabs)
        seen = tabs.found() if tabs else None
        problems = done.problems + grows(done.memory) + (seen["wrong"] if seen else [])
        lost, leaked = (sum(look[name] for look in done.memory) for name in ("lost_by_comfyui", "leaked"))
        if leaked or ("memory leak" in server.log and not lost):
            problems.append("ComfyUI sees a model that is held by nobody it knows")
    return {
        "clients": clients,
        "minutes": (time.monotonic() - started) / 60,
        "answers": dict(done.answers),
        "wrong": problems,
        "lost": lost,
        "memory": done.memory,
        "tabs": seen,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--most", type=int, default=2000, help="prompts of each client")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    given = parser.parse_args()
    found = run_soak(min(given.clients, 64), min(given.minutes, 240.0), given.most)
    print(json.dumps({name: found[name] for name in ("clients", "minutes", "answers", "tabs", "wrong")}, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1))
    return bool(found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
