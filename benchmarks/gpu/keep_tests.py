"""A pytest plugin that keeps each test's outcome as soon as it is known: ``pytest -p keep_tests``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def pytest_runtest_logreport(report: Any) -> None:
    """Keep a row when a test has run, or was skipped or failed before that."""
    if report.when != "call" and report.outcome == "passed":
        return
    _keep(report, report.duration)


def pytest_collectreport(report: Any) -> None:
    """Keep a row when a file cannot even be read: a package that the machine lacks."""
    if report.failed:
        _keep(report, None)


def _keep(report: Any, seconds: float | None) -> None:
    from shared.record import keep  # the pack is loaded by now

    row = {"work": "tests that need a GPU", "name": report.nodeid, "seconds_median": seconds}
    text = str(report.longrepr) if report.outcome != "passed" and report.longrepr else ""
    keep([row | {"outcome": report.outcome, "why": text[-3000:]}], "passed")
