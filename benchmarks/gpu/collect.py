"""Make the files of ``results/`` from what a GPU run has kept line by line.

    python benchmarks/gpu/collect.py KEPT.jsonl [--out benchmarks/results] [--records FOLDER]

With --records each row that was timed also comes as ComfyUI's own benchmark capture writes it, in a file of its own.
``on_gpu.sh`` keeps each row as soon as it is measured. Of several lines for one row the last one counts; a last line
that was cut off in the middle, where the run was killed, is left out and said.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from comfy_host.pack import load_pack  # noqa: E402

load_pack()
from paceline.workbench.measurement.core_records import of_rows, write_records  # noqa: E402

Stage = dict[str, Any]


def stages(path: Path) -> dict[str, Stage]:
    """Return the content of a results file for each stage of a run."""
    found: dict[str, Stage] = {}
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


def main() -> None:
    """Write a file for each stage that has rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kept", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "results")
    parser.add_argument("--records", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, content in stages(options.kept).items():
        if content["rows"]:
            path = options.out / f"gpu_{name}.json"
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            print(f"{path}: {len(content['rows'])} rows")
            if options.records:
                write_records(of_rows(content, f"gpu_{name}"), options.records)


if __name__ == "__main__":
    main()
