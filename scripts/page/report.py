"""The reports of the techniques about the last picture: for the page, and for ``GET /paceline/report``."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from typing import Any

from modules import scripts

from ...optimizers.hosts.webui import Said

REPORT = "/paceline/report"


class TabReport:
    """Reports about one picture, or the few that are drawn at once; each tab's script keeps those of its last."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.entries: list[dict[str, Any]] = []

    def add(self, said: Sequence[Said], hires: bool) -> None:
        """Add the reports of one pass."""
        drawn = "the hires pass" if hires else "the first pass"
        for one in said:
            summary = one.summary
            entry = {"title": one.title, "pass": drawn, "state": summary.state, "headline": summary.headline}
            self.entries.append(entry | {"counts": dict(summary.counts), "details": list(summary.details)})

    def as_html(self) -> str:
        if not self.entries:
            return "No picture was drawn with Paceline yet."
        parts = []
        for entry in self.entries:
            lines = [f"{entry['title']}, {entry['pass']}: {entry['headline']}", *entry["details"]]
            first, *others = map(html.escape, lines)
            parts.append(f"<p><b>{first}</b></p><ul>{''.join(f'<li>{line}</li>' for line in others)}</ul>")
        return "".join(parts)


def last_report() -> TabReport:
    """Return the report of the tab that has drawn last: the program keeps one script for each tab."""
    runners = (scripts.scripts_txt2img, scripts.scripts_img2img)
    kept = [getattr(script, "report", None) for runner in runners for script in runner.alwayson_scripts]
    reports = [report for report in kept if isinstance(report, TabReport)]
    return max(reports, key=lambda report: report.begun, default=TabReport())


def add_route(_: object, app: Any) -> None:
    """Answer ``GET /paceline/report``."""
    app.add_api_route(REPORT, lambda: last_report().entries, methods=["GET"])
