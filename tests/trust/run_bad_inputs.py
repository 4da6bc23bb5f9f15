"""Give our nodes bad input of every kind on one server, and count the answers that a newcomer cannot understand."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from bad_inputs import Cases, answer
from hosting import trust_server


def give_bad_inputs(minutes: float) -> dict[str, Any]:
    """Run all cases that there is time for, and return what was found, for the table in docs/TRUST.md."""
    answers: Counter[str] = Counter()
    unclear: list[dict[str, str]] = []
    started = time.monotonic()
    with trust_server([]) as server, server.client() as client:
        cases = Cases(client.object_info())
        everything = list(cases.all())
        for case in everything:
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
