"""One format for all results: a row for each variant, printed as a table, and saved with what it takes to repeat it."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from pages.render_results import table

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # for the programs too, which import this first
from comfy_host.pack import load_pack  # noqa: E402
from comfy_host.paths import commit  # noqa: E402

load_pack()
from paceline.optimizers.core.devices import processor_name  # noqa: E402
from paceline.optimizers.core.files import write_atomically  # noqa: E402


@dataclass
class Row:
    """One variant of one piece of work.

    Attributes:
        name: the variant.
        work: what was done, the same words for all variants that can be compared.
        seconds_median: of one execution; likewise ``_min`` and ``_max``; None where time was not the question.
        cpu_seconds_median: processor time of one execution, all threads together.
        speedup: median over rounds of baseline time / this time; 1 for the baseline.
        peak_memory_bytes: most of a GPU's memory held at once during one execution.
        quality: named numbers, e.g. the relative error.
        roof_share: shortest time that the device allows / this one's: 1 would be as fast as possible.
        rounds: number of samples.
        pairs: values of each pair of prompt and seed, in one line.
    """

    name: str
    work: str
    seconds_median: float | None = None
    seconds_min: float | None = None
    seconds_max: float | None = None
    cpu_seconds_median: float | None = None
    speedup: float | None = None
    peak_memory_bytes: int | None = None
    quality: dict[str, float] = field(default_factory=dict)
    roof_share: float | None = None
    rounds: int = 0
    pairs: dict[str, str] = field(default_factory=dict)


def report(rows: list[Row], baseline: str, path: Path | None, notes: Mapping[str, str] | None = None) -> None:
    """Print ``rows`` as RESULTS.md shows them, and write them to ``path`` with everything needed to repeat them."""
    found = [asdict(row) for row in rows]
    print("", *table(found), sep="\n")
    if path is None:
        keep(found, baseline, notes)
    else:
        write(path, found, baseline, notes)


def collected(rows: Iterable[Row], baseline: str = "") -> list[Row]:
    """Return ``rows``; each is printed and kept as soon as it is measured."""
    found = []
    for row in rows:
        found.append(row)
        keep([asdict(row)], baseline)
        print(row.work, row.name, {key: round(value, 4) for key, value in row.quality.items()}, flush=True)
    return found


def about() -> dict[str, Any]:
    """Return what it takes to repeat this run: machine, versions, commit, command, and when it was."""
    return {
        "hardware": hardware(),
        "versions": versions(),
        "commit": commit(),
        "command": shlex.join(["python", _program(), *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _program() -> str:
    """Return what runs: a file of this repository, or e.g. ``-m pytest``'s own file, wherever Python is."""
    path = Path(sys.argv[0]).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else "/".join(path.parts[-2:])


def keep(rows: Iterable[Mapping[str, Any]], baseline: str = "", notes: Mapping[str, str] | None = None) -> None:
    """Append rows to the file that ``PACELINE_KEEP`` names, if it does, as soon as they are measured.

    A run that is killed then loses what it was measuring and nothing else. A line is one row; a later line of the same
    work and name takes the place of an earlier one. ``collect.py`` makes the files of ``results/`` of it.
    """
    place = os.environ.get("PACELINE_KEEP")
    if not place:
        return
    stage = os.environ.get("PACELINE_STAGE", Path(sys.argv[0]).stem)
    lines: list[dict[str, Any]] = [{"stage": stage, "row": dict(row)} for row in rows]
    if stage not in _introduced or notes:
        _introduced.add(stage)
        lines.insert(0, {"stage": stage, "about": about() | {"baseline": baseline, "notes": dict(notes or {})}})
    with open(place, "a+", encoding="utf-8") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        cut_off = file.read(1) not in ("", "\n")  # the run before was killed in the middle of a line
        file.write("\n" * cut_off + "".join(json.dumps(line) + "\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


_introduced: set[str] = set()


def kept(work: str) -> set[str]:
    """Return the variants of some work that earlier calls of this stage have kept; none if all is measured again."""
    place = os.environ.get("PACELINE_KEEP")
    if not place or not Path(place).is_file() or os.environ.get("PACELINE_AGAIN"):
        return set()
    found = stages(Path(place)).get(os.environ.get("PACELINE_STAGE", ""), {"rows": []})["rows"]
    return {row["name"] for row in found if row["work"] == work}


def stages(path: Path) -> dict[str, dict[str, Any]]:
    """Return the content of a results file for each stage of what `keep` has written.

    Of several lines for one row the last one counts; a line that was cut off by a kill is left out and said.
    """
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
        except ValueError:
            print(f"{path}: line {number} is not complete and is left out", file=sys.stderr)
            continue
        stage = found.setdefault(entry["stage"], {"rows": {}})
        if "about" in entry:
            stage |= entry["about"]
        else:
            row = entry["row"]
            stage["rows"][row.get("work"), row.get("name")] = row
    return {name: stage | {"rows": list(stage["rows"].values())} for name, stage in found.items()}


def write(path: Path, rows: list[dict[str, Any]], baseline: str, notes: Mapping[str, str] | None = None) -> None:
    """Write rows of any form to ``path`` with everything needed to repeat them."""
    keep(rows, baseline, notes)
    content = about() | {"baseline": baseline, "notes": dict(notes or {}), "rows": rows}
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(content, indent=1) + "\n"))
    print(f"\nWritten to {path}")


def hardware() -> dict[str, Any]:
    """Describe the machine."""
    return {
        "cpu": processor_name(),
        "cpu_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def versions() -> dict[str, str | None]:
    """Return the versions of what was measured."""
    found: dict[str, str | None] = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("torch", "tomesd", "diffusers", "torchao", "triton"):
        found[package] = None
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    found["comfyui"] = resolve_name("comfyui_version:__version__") if "comfy" in sys.modules else None
    return found
