"""Give our nodes bad input of every kind on one server, and count the answers that a newcomer cannot understand.

.venv/bin/python tests/trust/run_bad_inputs.py --count 2000
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
    from comfy_host import standins

    standins.install()

from bad_inputs import Cases, answer
from hosting import trust_server


def give_bad_inputs(count: int, seed: int, minutes: float, only: str) -> dict[str, Any]:
    """Run cases and return what was found, for the table in docs/TRUST.md."""
    answers: Counter[str] = Counter()
    unclear: list[dict[str, str]] = []
    started = time.monotonic()
    with trust_server([]) as server, server.client() as client:
        cases = Cases(client.object_info())
        everything = [case for case in cases.all() if only in f"{case.node} {case.what}"]
        chosen = cases.some(count, seed) if not only and count < len(everything) // 2 else everything
        for case in chosen:
            if time.monotonic() - started > minutes * 60:
                break
            begun = time.monotonic()
            try:
                kind, message = answer(client, case)
            except Exception as error:  # the server is gone, or hangs
                kind, message = "unclear", f"{type(error).__name__}: {error}"
            answers[kind] += 1
            took = time.monotonic() - begun
            if kind == "unclear":
                unclear.append({"node": case.node, "what": case.what, "message": message, "seconds": f"{took:.1f}"})
                print(f"{kind}: {case.node}: {case.what} ({took:.1f} s): {message}", flush=True)
    return {
        "cases": sum(answers.values()),
        "possible": len(everything),
        "answers": dict(answers),
        "unclear": unclear,
        "minutes": (time.monotonic() - started) / 60,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="how many of all cases, chosen at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="", help="cases with this in 'node input = value'")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    given = parser.parse_args()
    found = give_bad_inputs(given.count, given.seed, given.minutes, given.only)
    print(json.dumps({name: found[name] for name in ("cases", "possible", "answers", "minutes")}, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1))
    return bool(found["answers"].get("unclear"))


if __name__ == "__main__":
    sys.exit(main())
