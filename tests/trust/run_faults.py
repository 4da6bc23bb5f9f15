"""Faults of machines on real servers: killed, full disk, read-only, damaged files, two servers, launch flags.

.venv/bin/python tests/trust/run_faults.py --kills 9 --graphs 5
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

import faults
from flags import FLAGS, under_flags
from hosting import trust_server


def try_faults(kills: int, graphs: int, only: str, minutes: float) -> dict[str, Any]:
    """Try all faults, none begun after so many minutes, and return what was found, for the table in docs/TRUST.md."""
    found: dict[str, Any] = {}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)

        def on_one_server(what: str) -> faults.Found:
            with trust_server([], base_directory=base / what) as server, server.client() as client:
                if what == "damaged files":
                    return faults.damaged_files(client, server.base_directory, seed=0)
                if not faults.can_mount(base / "probe"):
                    return 0, []
                return faults.full_and_read_only_disks(client, server.base_directory)

        tries = {
            "SIGKILL while saving, comparing, sweeping": lambda: faults.kill_at_random_points(
                base / "killed", kills, 0
            ),
            "full and read-only disks": lambda: on_one_server("full disks"),
            "damaged files": lambda: on_one_server("damaged files"),
            "two servers with one user folder": lambda: faults.two_servers(base / "shared"),
            **{" ".join(flags): (lambda flags=flags: under_flags(flags, graphs)) for flags in FLAGS},
        }
        for name, attempt in tries.items():
            started = time.monotonic()
            if only not in name or started - begun > minutes * 60:
                continue
            try:
                count, problems = attempt()
            except Exception as error:
                count, problems = 1, [f"{type(error).__name__}: {error}"]
            found[name] = {"tried": count, "wrong": problems, "minutes": (time.monotonic() - started) / 60}
            print(f"{name}: {count} tried, {len(problems)} wrong", *problems, sep="\n  ", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=9)
    parser.add_argument("--graphs", type=int, default=5, help="random graphs for each launch flag")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin no fault after this")
    parser.add_argument("--only", default="", help="faults with this in their name")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    given = parser.parse_args()
    found = try_faults(given.kills, given.graphs, given.only, given.minutes)
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1))
    return any(entry["wrong"] for entry in found.values())


if __name__ == "__main__":
    sys.exit(main())
