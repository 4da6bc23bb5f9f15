"""Which process runs which tests: the longest first, so that all processes end at about the same time.

All that shares the server goes to one process: each process would start a server of its own. Everything else is dealt
out by file, those with diffusers first: they are done before the process with the server is free, which then need not
import diffusers too. ``seconds.json`` has what each file took; ``make test PYTEST_ARGS=--write-seconds`` writes it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("seconds.json")
SERVER = "server"
"""The unit of all that shares the server."""
SHARED = ("tests/browser/", "tests/e2e/", "tests/trust/")
# What starts servers of its own in these folders, or needs none.
APART = {
    "tests/e2e/test_manager_install.py",
    "tests/e2e/test_registry_archive.py",
    "tests/e2e/test_templates.py",
    "tests/trust/test_faults.py",
    "tests/trust/test_report.py",
    "tests/trust/test_two_users.py",
}


def file_of(nodeid: str) -> str:
    """Return the file of a test, as the table names it."""
    return nodeid.split("::")[0]


def unit(nodeid: str) -> str:
    """Return what is handed to one process as a whole: a file, or all that shares the server."""
    file = file_of(nodeid)
    return SERVER if file.startswith(SHARED) and file not in APART else file


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by how long their unit takes, a new file as long as the mean; the browser is opened last."""

    def rank(unit: str) -> int:
        return 0 if unit == SERVER else 1 if "/test_diffusers_" in unit else 2

    known: dict[str, float] = json.loads(TABLE.read_text(encoding="utf-8"))
    mean = sum(known.values()) / len(known)
    total: Counter[str] = Counter()
    for file in {file_of(item.nodeid) for item in items}:
        total[unit(file)] += known.get(file, mean)
    units = {item: unit(item.nodeid) for item in items}
    items.sort(key=lambda item: (rank(units[item]), -total[units[item]], units[item], "/browser/" in item.nodeid))


class Stopwatch:
    """Writes the table of seconds at the end of a run."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what a test has taken, with its fixtures."""
        self.seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Keep what other runs have found of files that were not run, and drop files that are gone."""
        known = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
        known |= {file: round(seconds, 1) for file, seconds in self.seconds.items()}
        known = {file: known[file] for file in sorted(known) if (TABLE.parents[1] / file).exists()}
        TABLE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
