"""Make the files of ``results/`` from what a GPU run has kept line by line.

    python benchmarks/gpu/collect.py KEPT.jsonl [--out benchmarks/results] [--records FOLDER]

With --records each row that was timed also comes as ComfyUI's own benchmark capture writes it, in a file of its own.
``on_gpu.sh`` keeps each row as soon as it is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHMARKS))
from shared.record import stages  # noqa: E402

# isort: split
from paceline.workbench.measurement.core_records import Record, core_record, write_records  # noqa: E402


def main() -> None:
    """Write a file for each stage that has rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kept", type=Path)
    parser.add_argument("--out", type=Path, default=BENCHMARKS / "results")
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


def of_rows(results: Mapping[str, Any], name: str) -> Iterator[Record]:
    """Yield a record for each timed row of a file of results."""
    hardware, versions = results["hardware"], results["versions"]
    gpu = hardware.get("gpu")
    device = {
        "backend": "cpu" if gpu is None else "cuda",
        "gpu_model": gpu,
        "cpu_model": hardware["cpu"],
        "pytorch_version": versions["torch"],
        "comfyui_version": versions["comfyui"],
        "os": versions["platform"],
    }
    for number, row in enumerate(results["rows"], start=1):
        if row.get("seconds_median") is None:
            continue
        run = {"benchmark_id": f"{name}: {row['work']}: {row['name']}", "measured_runs": row["rounds"]}
        peak = row.get("peak_memory_bytes")
        yield core_record(f"{name}_{number}", results["date"], row["seconds_median"], run, {}, device, peak_bytes=peak)


if __name__ == "__main__":
    main()
