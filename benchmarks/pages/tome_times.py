"""Write the part *Apply ToMe: the time* of docs/results.md from the files of token_reduction.py in results/.

    python benchmarks/pages/tome_times.py

It says which files of an older form are in the way, and what the README's row should say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results.md"
BEGIN, END = "## Apply ToMe: the time\n", "### Models of today\n"
PLAIN, STEPS = "no reduction", ("20 steps", "8 steps")

TEXT = """
[shares of the work](../benchmarks/RESULTS.md#work-shares), {links};
`python benchmarks/work_shares.py`, `python benchmarks/token_reduction.py`

The work of self-attention grows with the square of the picture's area. Attention is 16 % of the work of SD 1.5 at 512 x 512 and
42 % at 1024 x 1024; of SDXL 12 % at 1024 x 1024 and 34 % at 2048 x 2048. No token method can save more than that and the projections.
It saves more where attention is slow, as on processors.

Networks of full size with random weights on two cores of an {processors}, without guidance. Calls of the network
were timed one by one, variants in turn; the time of a picture is the sum of its calls. A full step computes attention both ways, a step
after it adds the difference. *Not added* leaves out the same tokens and keeps nothing, so between the two is what adding takes; below
the noise of these times it can be negative. Fewer steps are so many
plain steps. In time `quality` saves less than its share of the work tells: the full steps compute attention twice, and choosing,
adding and moving take time too.
"""  # noqa: E501
Rows = dict[str, dict[str, Any]]
Work = tuple[str, dict[str, Rows]]
"""A network with its size, and its rows by number of steps and name."""


def works(content: dict[str, Any]) -> list[Work]:
    """Return what a file has measured; nothing of an older form."""
    found: dict[str, dict[str, Rows]] = {}
    for row in content["rows"]:
        steps, _, work = row["work"].partition(": ")
        if "step_seconds_median" in row["quality"]:
            found.setdefault(work, {}).setdefault(steps, {})[row["name"]] = row
    return list(found.items())


def size(work: str) -> str:
    """Return what a network with its size is called on the page."""
    return re.sub(r", \d+ channels|, batch 1$|, 1 of 4 of its tokens$", "", work)


def name(row: str) -> str:
    """Return what a row is called on the page."""
    row = row.replace("ComfyUI ", "ComfyUI's ")
    return re.sub(r"preset (\w+)(, not added)?", lambda one: f"preset `{one[1]}`" + (one[2] or ""), row)


def pictures(found: Iterable[Work]) -> Iterator[str]:
    """Yield the tables of times of pictures, and of what the difference costs in a step."""
    for steps in STEPS:
        works = [(work, rows[steps]) for work, rows in found if steps in rows]
        names = dict.fromkeys(one for _, rows in works for one in rows if "not added" not in one)
        yield f"| {steps} | " + " | ".join(map(name, names)) + " |"
        yield "|---|" + "---:|" * len(names)
        for work, rows in works:
            given = [rows.get(one) for one in names]
            cells = ["" if row is None else f"{row['seconds_median']:.1f} s, {row['speedup']:.2f}x" for row in given]
            yield f"| {size(work)} | {' | '.join(cells)} |"
        yield ""
    yield "| one step | plain | full | difference added | not added | adding takes | held |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for work, by_steps in found:
        rows = by_steps[STEPS[0]]
        for preset in (one for one in rows if f"{one}, not added" in rows):
            plain, kept, without = (rows[one]["quality"] for one in (PLAIN, preset, f"{preset}, not added"))
            seconds = (
                plain["step_seconds_median"],
                kept["full_step_seconds_median"],
                kept["step_seconds_median"],
                without["step_seconds_median"],
            )
            cells = " | ".join(f"{one:.2f} s" for one in seconds)
            share, held = f"{100 * kept['adding']:.1f} %", f"{kept['held_bytes'] / 1e6:.0f} MB"
            yield f"| {size(work)}, `{preset.removeprefix('preset ')}` | {cells} | {share} | {held} |"
    yield ""


def section(files: dict[Path, list[Work]]) -> str:
    """Return the part of the page."""
    links = ", ".join(
        f"[{path.stem.replace('_', ' ')}](../benchmarks/RESULTS.md#{path.stem.replace('_', '-')})" for path in files
    )
    hardware = {json.loads(path.read_text(encoding="utf-8"))["hardware"]["cpu"] for path in files}
    found = [work for each in files.values() for work in each]
    unets = [work for work in found if work[0].startswith("SD")]
    others = [work for work in found if work not in unets]
    lines = [TEXT.format(links=links, processors=" and an ".join(sorted(hardware)))]
    lines += [*pictures(unets)] if unets else []
    if others:
        lines += ["Transformers of today, one block of each kind, a quarter of the width and of the tokens:", ""]
        lines += pictures(others)
    return "\n".join([BEGIN.strip(), *lines, ""])


def main() -> None:
    """Write the part."""
    paths = sorted((ROOT / "benchmarks" / "results").glob("token_reduction_*.json"))
    files = {path: works(json.loads(path.read_text(encoding="utf-8"))) for path in paths}
    new = {path: found for path, found in files.items() if found}
    if not new:
        raise SystemExit("No file of benchmarks/token_reduction.py is in benchmarks/results.")
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text[: text.index(BEGIN)] + section(new) + text[text.index(END) :], encoding="utf-8")
    for path in files.keys() - new.keys():
        print(f"git rm {path.relative_to(ROOT)}  # of an older form")
    gains = (
        (work, rows["20 steps"]["preset balanced"])
        for found in new.values()
        for work, rows in found
        if "20 steps" in rows
    )
    print("README:", "; ".join(f"{size(work)}: {row['speedup']:.2f}x" for work, row in gains))


if __name__ == "__main__":
    main()
