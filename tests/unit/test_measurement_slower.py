"""When a workflow is called slower: like is compared with like, and one slow run is chance."""

from __future__ import annotations

from dataclasses import replace

import pytest
from paceline.faster.kept import KeptRun, slower

BASE = KeptRun("work", "2026-11-01T10:00:00+00:00", {"steps": 12.0, "loading": 2.0}, False, {"ComfyUI": "0.30"}, {})


def slower_of(runs):
    return slower(runs, runs[-1])


def run(day: int, steps: float = 12.0, loading: float = 2.0, **changes) -> KeptRun:
    when = f"2026-11-{day:02}T10:00:00+00:00"
    return replace(BASE, when=when, seconds={"steps": steps, "loading": loading}, **changes)


QUICK = [run(1), run(2, 12.5), run(3, 11.8), run(4)]
NEWER = {"ComfyUI": "0.33"}


def test_it_says_since_when_where_and_what_changed():
    slow = [run(8, 12.0, 41.0, facts=NEWER), run(9, 12.2, 39.0, facts=NEWER)]
    found = slower_of([*QUICK, *slow])
    since = "Slower since 2026-11-08 10:00 UTC: loading "
    assert found.startswith(f"{since}40 of 52.1 s, before 2 of 14 s. Changed since: ComfyUI 0.30 ") and "0.33." in found
    later = slower_of([*QUICK, *slow, run(10, 12.1, 40.0, facts=NEWER)])
    assert later.startswith(since), "it stays true while it lasts"


@pytest.mark.parametrize(
    "runs",
    [
        QUICK,
        [*QUICK, run(8, 30.0)],  # one alone: another program may have been at work
        [*QUICK, run(8, 30.0), run(9)],  # it is quick again
        [*QUICK, run(8, 30.0), run(9), run(10, 30.0)],
        [*QUICK[:2], run(8, 30.0), run(9, 30.0)],  # too few before
        [*QUICK, run(8, 15.0), run(9, 15.0)],  # not clearly
        [run(1), run(2, 25.0), run(3), run(8, 30.0), run(9, 30.0)],  # one before was about as slow
        [*QUICK, run(8, 30.0, work="another"), run(9, 30.0, work="another")],
        [replace(one, seconds={"steps": 0.1}) for one in QUICK] + [run(8, 0.2, 0.0), run(9, 0.2, 0.0)],  # twice nothing
    ],
)
def test_no_alarm(runs: list[KeptRun]):
    assert slower_of(runs) is None


def test_the_first_run_after_a_start_is_compared_with_such_runs_and_without_what_it_loads():
    cold = [run(day, loading=30.0 * day, loaded=True) for day in (5, 6, 7, 8, 9)]
    assert slower_of([*QUICK, *cold]) is None
    slow = [run(day, 40.0, 2.0, loaded=True) for day in (10, 11)]
    found = slower_of([*cold, *QUICK, *slow])
    assert "steps 40 of 40 s, before 12 of " in found and found.endswith("Versions and device are the same as before.")
