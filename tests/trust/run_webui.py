"""Ask Stable Diffusion WebUI and Forge for random pictures, and for the plain one after each.

    WEBUI_PATH=... FORGE_PATH=... .venv/bin/python tests/trust/run_webui.py --count 200 --minutes 60

Each line is a request; ``--first SEED --count 1 --host FORGE`` repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / folder) for folder in ("tools", "tests", "tests/trust")]
    from comfy_host import standins

    standins.install()

from comfy_host.paths import commit
from webui.host import NAMES, Host, running
from webui_requests import Judge, Requests


def hosts_here() -> list[str]:
    return [name for name in NAMES if os.environ.get(f"{name}_PATH")]


def ask_hosts(names: Sequence[str], first: int, count: int, minutes: float) -> dict[str, Any]:
    """Ask each host in turn, none for longer than its share of the minutes; return what was found for docs/TRUST.md."""
    started, hosts = time.monotonic(), {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder, running(name, Path(folder)) as host:
            hosts[name] = ask(host, first, count, minutes / len(names))
    return {"hosts": hosts, "minutes": (time.monotonic() - started) / 60, "commit": commit()}


def ask(host: Host, first: int, count: int, minutes: float) -> dict[str, Any]:
    """Ask one host for ``count`` pictures, none begun after so many minutes."""
    started, states, faults, wrong = time.monotonic(), Counter[str](), Counter[str](), []
    requests, judge = Requests(host), Judge(host)
    for seed in range(first, first + count):
        if time.monotonic() - started > minutes * 60:
            break
        begun, request = time.monotonic(), requests.request(seed)
        verdict = judge.judge(request)
        states[verdict.state] += 1
        faults[request.fault] += 1
        print(f"{host.name} {seed} {request.fault}: {verdict.state}, {time.monotonic() - begun:.1f} s", flush=True)
        if verdict.problems:
            wrong.append({"seed": seed, "request": str(request), "problems": verdict.problems})
            print(f"  {str(request)[:2000]}\n  " + "\n  ".join(verdict.problems), flush=True)
    found = {"requests": states.total(), "of": count, "wrong": wrong}
    return found | {"states": dict(states), "faults": dict(faults)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="seed of the first request")
    parser.add_argument("--count", type=int, default=200, help="requests for each host")
    parser.add_argument("--minutes", type=float, default=120.0, help="of all hosts together")
    parser.add_argument("--host", choices=NAMES, help="only this one")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    given = parser.parse_args()
    found = ask_hosts([given.host] if given.host else hosts_here(), given.first, given.count, given.minutes)
    print(json.dumps(found, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1))
    return any(one["wrong"] for one in found["hosts"].values())


if __name__ == "__main__":
    sys.exit(main())
