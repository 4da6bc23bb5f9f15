"""Writes docs/TRUST.md from the results of the runs; what was not run again stays as it stands there."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "TRUST.md"
TITLES = {
    "graphs": "Random graphs",
    "steps": "With enough steps for Reuse Steps",
    "inductor": "With generated code",
    "packs": "Beside other node packs",
    "verdicts": "",
    "bad_inputs": "Bad input",
    "faults": "Faults of machines",
    "soak": "Many clients at once",
    "webui": "Stable Diffusion WebUI and Forge",
    "pipelines": "Pipelines of diffusers",
    "peers": "Other projects' own tests",
}
"""Of the parts, in their order; of verdicts wrong answers are not counted."""

Found = Mapping[str, Any]
Rows = Sequence[tuple[str, Any]]


def result(tried: str, rows: Rows, wrong: Sequence[str], started: float, **more: Any) -> dict[str, Any]:
    """Return what a part has found: how often it ``tried``, the rows of its table, and each wrong answer.

    ``more``: ``above`` and ``below`` are texts around the table, all else is kept in the file of results alone.
    """
    return {"tried": tried, "rows": rows, "wrong": wrong, "minutes": (time.monotonic() - started) / 60, **more}


def render(parts: Mapping[str, Found], before: str = "") -> str:
    """Return the document; what the one ``before`` says of a part that is missing stays, else it was not run."""
    frame = (HERE / "trust.md").read_text(encoding="utf-8")
    kept = {name: _kept(before, frame, name) for name in TITLES}
    for name in TITLES:
        text = _section(parts[name]) if name in parts else kept[name] or "Not run this time."
        frame = frame.replace(f"<!-- {name} -->", text)
    return frame.replace("<!-- summary -->", _summary(parts, before))


def write(folder: Path) -> None:
    """Write the document from the JSON files in ``folder``, one for each part."""
    files = {name: folder / f"{name}.json" for name in TITLES}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    parts = {name: one for name, one in found.items() if "rows" in one}  # no results of an older form
    before = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else ""
    DOCUMENT.write_text(render(parts, before), encoding="utf-8")


def _kept(before: str, frame: str, name: str) -> str:
    """Return what a document says of a part: what stands between the lines around its place in the frame."""
    above, _, below = frame.partition(f"<!-- {name} -->")
    last, following = above.rstrip().rpartition("\n")[2], below.strip().partition("\n")[0]
    said = before.partition(f"{last}\n")[2]
    return said.partition(following if following and following in said else "\n## ")[0].strip()


def _summary(parts: Mapping[str, Found], before: str) -> str:
    said = {line.partition("](")[0][3:]: line for line in before.splitlines() if line.startswith("| [")}
    for name, found in parts.items():
        if title := TITLES[name]:
            anchor = title.lower().replace(" ", "-").replace("'", "")
            said[title] = f"| [{title}](#{anchor}) | {found['tried']} | {len(found['wrong'])} |"
    lines = (said[title] for title in TITLES.values() if title in said)
    return "\n".join(("| | Tried | Wrong |", "|---|---:|---:|", *lines))


def _section(found: Found) -> str:
    commit = f", at commit {found['commit']}" if found.get("commit") else ""
    wrong = "".join(f"\n- {problem.splitlines()[0]}" for problem in found["wrong"])
    blocks = (
        found.get("above", ""),
        "| | |\n|---|---:|\n" + "\n".join(f"| {name} | {value} |" for name, value in found["rows"]),
        f"{found['minutes']:.0f} minutes{commit}.",
        found.get("below", ""),
        f"Wrong in this run:\n{wrong}" if wrong else "",
    )
    return "\n\n".join(filter(None, blocks))
