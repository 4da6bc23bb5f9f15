"""The reports of the techniques about the last picture: for the page, and for ``GET /paceline/report``."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from typing import Any

from modules import scripts, shared

from ...optimizers.hosts.webui import TechniqueReport

REPORT = "/paceline/report"

_MOST = 24
"""Reports that are kept."""


class TabReport:
    """Reports about the pictures of one ``p``, and of those that other extensions draw meanwhile, as face detailers do.

    Equal reports are counted, as ``times``; of those of further kinds it is said how many there were.
    """

    def __init__(self, p: Any = None) -> None:
        self.begun = time.monotonic()
        self.entries: list[dict[str, Any]] = []
        self.more = 0
        self._p, self._job = id(p), _job()

    def goes_on(self) -> bool:
        """Return whether its pictures are still being drawn."""
        return self._job is not None and self._job == _job()

    def ended(self, p: Any) -> None:
        """Note that all pictures of ``p`` are drawn."""
        if id(p) == self._p:
            self._job = None

    def add(self, p: Any, said: Sequence[TechniqueReport], hires: bool) -> None:
        """Add the reports of one pass."""
        drawn = "the hires pass" if hires else "the first pass" if id(p) == self._p else "a further picture"
        for one in said:
            summary = one.summary
            entry: dict[str, Any] = {"title": one.title, "pass": drawn, "state": summary.state}
            entry |= {"headline": summary.headline, "counts": dict(summary.counts), "details": list(summary.details)}
            known = next((other for other in self.entries if other | entry == other), None)
            if known is not None:
                known["times"] += 1
            elif len(self.entries) < _MOST:
                self.entries.append({**entry, "times": 1})
            else:
                self.more += 1

    def as_html(self) -> str:
        if not self.entries:
            return "No picture was drawn with Paceline yet."
        parts = []
        for entry in self.entries:
            times = f" ({entry['times']} times)" if entry["times"] > 1 else ""
            lines = [f"{entry['title']}, {entry['pass']}{times}: {entry['headline']}", *entry["details"]]
            first, *others = map(html.escape, lines)
            parts.append(f"<p><b>{first}</b></p><ul>{''.join(f'<li>{line}</li>' for line in others)}</ul>")
        more = [f"<p>and {self.more} more</p>"] if self.more else []
        return "".join([*parts, *more])


def _job() -> object:
    """Return what tells one click from the next; None where the program does not say."""
    return getattr(getattr(shared, "state", None), "time_start", None)


def last_report() -> TabReport:
    """Return the report of the tab that has drawn last: the program keeps one script for each tab."""
    runners = (scripts.scripts_txt2img, scripts.scripts_img2img)
    kept = [getattr(script, "report", None) for runner in runners for script in runner.alwayson_scripts]
    reports = [report for report in kept if isinstance(report, TabReport)]
    return max(reports, key=lambda report: report.begun, default=TabReport())


def add_route(_: object, app: Any) -> None:
    """Answer ``GET /paceline/report``."""
    app.add_api_route(REPORT, lambda: last_report().entries, methods=["GET"])
