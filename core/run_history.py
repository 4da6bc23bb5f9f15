"""What a technique did in all runs of one prompt: an upscaler samples twice, a face detailer once for each face."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .activity import Activity, Summary, with_faults
from .phrases import phrase
from .technique import Policy

MOST_LINES = 6
"""So many kinds of runs have a line of their own."""

_MOST_KEPT = 100
"""A program can sample for days: runs of further kinds are only counted."""


class RunHistory:
    """The runs before the latest one: their sum, and a line for each kind of them."""

    def __init__(self, policy: Policy) -> None:
        self.seconds = 0.0
        self.activity = Activity()
        self._policy = policy
        self._whole: Summary | None = None
        self._runs, self._active = 0, 0
        self._lines: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return self._runs

    def add(self, run: Summary, activity: Activity, seconds: float = 0.0) -> None:
        self.activity.add(activity)
        self.seconds += seconds
        self._whole = run if self._whole is None else self._policy.together(self._whole, run, self.activity)
        self._runs += 1
        self._active += _did_something(run)
        if run.line in self._lines or len(self._lines) < _MOST_KEPT:
            self._lines.setdefault(run.line, [self._runs, 0])[1] += 1

    def ending_with(self, latest: Summary, activity: Activity) -> Summary:
        """Return the summary of all runs, with the ``latest`` one and its ``activity``; itself where it is alone."""
        if self._whole is None:
            return latest
        total = Activity()
        total.add(self.activity)
        total.add(activity)
        found = with_faults(self._policy.together(self._whole, latest, total), total)
        headline, active, runs = found.headline, self._active + _did_something(latest), self._runs + 1
        if 0 < active < runs:
            headline = phrase("{headline}, in {active} of {runs} runs", headline=headline, active=active, runs=runs)
        return replace(found, headline=headline, details=(*self._lines_with(latest), *found.details))

    def _lines_with(self, latest: Summary) -> Iterator[str]:
        """Yield e.g. ``run 1: active in 3 of 7 blocks``; equal ones together: ``12 runs: ...``; then how many more."""
        lines = {line: [*known] for line, known in self._lines.items()}
        lines.setdefault(latest.line, [self._runs + 1, 0])[1] += 1
        shown = [*lines.items()][:MOST_LINES]
        for line, (first, count) in shown:
            yield f"{f'run {first}' if count == 1 else f'{count} runs'}: {line}"
        more = self._runs + 1 - sum(count for _, (_, count) in shown)
        if more:
            yield f"and {more} more run{'' if more == 1 else 's'}"


def _did_something(run: Summary) -> bool:
    return run.state in ("active", "partly")
