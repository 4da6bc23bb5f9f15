"""Write RESULTS.md from the files in results/ and from TRIED.md: the same files give the same bytes.

python benchmarks/pages/render_results.py
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1]
RESULTS = FOLDER / "results"
PAGE = FOLDER / "RESULTS.md"
TRIED = FOLDER / "TRIED.md"
"""What did not help, one row each: kept by hand, because its benchmarks are not."""

_START = """# Results

Written by `python benchmarks/pages/render_results.py` from the files in `results/`; do not edit. Each table has the
machine, the versions and the command beside it. Times are medians over rounds in which all variants took turns, with
the shortest and the longest; *speed-up* is the median of the rounds' own ratios to the baseline.

*Of the roof* is how near a time comes to what the device allows: the multiplications of the baseline, whatever the
variant leaves out of them, at the speed of the largest matrix product on the same device, over the time. Above 100 % is
only what does less work, or works in a narrower dtype. A row in bold says what the rows below it did. Words that
several parts have in common:
"""

_VERSIONS = ("python", "torch", "comfyui", "tomesd", "diffusers", "torchao", "triton")
# Shown in another column, or not by itself.
_ABSORBED = ("name", "work", "quality", "seconds_min", "seconds_max", "rounds", "pairs")
_TITLES = {"seconds_median": "time", "cpu_seconds_median": "processor time", "speedup": "speed-up",
           "peak_memory_bytes": "peak memory", "roof_share": "of the roof"}  # fmt: skip

Row = dict[str, Any]


def page(folder: Path = RESULTS) -> str:
    """Return the whole page for the files in a folder."""
    files = sorted(folder.glob("*.json"))
    contents = [f"- [{_title(path)}](#{path.stem.replace('_', '-')})" for path in files]
    contents.append("- [Tried, and not in the pack](#tried-and-not-in-the-pack)")
    words = common_words(files)
    parts = [section(path, words) for path in files]
    return "\n".join([_START, *map(_note, words), "", *contents, "", *parts, TRIED.read_text("utf-8")]).rstrip() + "\n"


def common_words(files: Iterable[Path]) -> list[tuple[str, str]]:
    """Return the notes that three files and more have, and all of those in the same words."""
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    seen = Counter(note for content in contents for note in (content.get("notes") or {}).items())
    names = Counter(name for name, _ in seen)
    return [(name, note) for (name, note), times in seen.items() if times >= 3 and names[name] == 1]


def section(path: Path, known: Iterable[tuple[str, str]] = ()) -> str:
    """Return the part of the page for one file, without the notes that stand above."""
    content = json.loads(path.read_text(encoding="utf-8"))
    lines = [f"## {_title(path)}", "", _hardware(content["hardware"]), "", _versions(content), "",
             f"    {content['command']}", "", f"Baseline: {content['baseline']}.", ""]  # fmt: skip
    notes = [_note(note) for note in (content.get("notes") or {}).items() if note not in known]
    lines += [*notes, ""] if notes else []
    picture = path.with_suffix(".png")
    if picture.exists():
        lines += [f"![{_title(path)}](results/{picture.name})", ""]
    return "\n".join([*lines, *table(content["rows"]), ""])


def _note(note: tuple[str, str]) -> str:
    return f"- *{note[0].replace('_', ' ')}*: {note[1]}"


def table(rows: list[Row]) -> list[str]:
    """Return the lines of Markdown tables: a new one where the columns are others than above."""
    lines: list[str] = []
    head: list[str] = []
    for work, group in _by_work(rows).items():
        flat = [{**row, **(row.get("quality") or {})} for row in group]
        names = list(dict.fromkeys(name for row in flat for name in row if name not in _ABSORBED))
        columns = [name for name in names if any(_measured(name, row) for row in flat)]
        if columns != head:
            head = columns
            titles = ["variant", *(_TITLES.get(name, name.replace("_", " ")) for name in columns)]
            lines += [""] if lines else []
            lines += ["| " + " | ".join(titles) + " |", "|---|" + "---:|" * len(columns)]
        lines.append(f"| **{work}** |" + " |" * len(columns))
        lines += ["| " + " | ".join([str(row["name"]), *(_cell(name, row) for name in columns)]) + " |" for row in flat]
    return lines


def _measured(name: str, row: Row) -> bool:
    """Return whether a row has a value. No time and no memory is ever exactly nothing: such a zero was not measured."""
    value = row.get(name)
    return value is not None and not (value == 0 and name in ("cpu_seconds_median", "peak_memory_bytes"))


def _cell(name: str, row: Row) -> str:
    value = row.get(name)
    return "" if value is None else _FORMATS[name](row) if name in _FORMATS else _plain(value)


def _time(row: Row) -> str:
    shortest, longest = row.get("seconds_min"), row.get("seconds_max")
    text = _seconds(row["seconds_median"])
    return text if shortest in (None, longest) else f"{text} ({_seconds(shortest)} to {_seconds(longest)})"


_FORMATS: dict[str, Callable[[Row], str]] = {
    "seconds_median": _time,
    "cpu_seconds_median": lambda row: _seconds(row["cpu_seconds_median"]),
    "speedup": lambda row: f"{row['speedup']:.2f}x",
    "peak_memory_bytes": lambda row: f"{row['peak_memory_bytes'] / 2**20:.1f} MiB",
    "roof_share": lambda row: f"{row['roof_share']:.0%}",
}


def _seconds(value: float) -> str:
    """Return seconds or milliseconds with about three digits."""
    if value >= 1:
        return f"{value:.2f} s"
    milliseconds = 1000 * value
    digits = 3 if milliseconds < 1 else 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:.{digits}f} ms"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _by_work(rows: Iterable[Row]) -> dict[str, list[Row]]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(str(row.get("work", "")), []).append(row)
    return parts


def _title(path: Path) -> str:
    return path.stem.replace("_", " ")


def _hardware(hardware: dict[str, Any]) -> str:
    cores, threads = hardware["cpu_cores"], hardware["torch_threads"]
    used = f"{cores} core{'s' if cores != 1 else ''}, {threads} thread{'s' if threads != 1 else ''} for torch"
    return f"Hardware: {hardware.get('gpu') or 'no GPU'}; {hardware['cpu']}, {used}."


def _versions(content: dict[str, Any]) -> str:
    found = content["versions"]
    known = ", ".join(f"{name} {found[name]}" for name in _VERSIONS if found.get(name))
    return f"Versions: {known}; {found['platform']}. Commit {content['commit']}, {content['date'][:10]}."


def main() -> None:
    text = page()
    PAGE.write_text(text, encoding="utf-8", newline="\n")
    print(f"{PAGE}: {len(text.splitlines())} lines from {len(list(RESULTS.glob('*.json')))} files")


if __name__ == "__main__":
    main()
