"""Make the files of ``results/`` from what a GPU run has kept line by line.

    python benchmarks/gpu/collect.py KEPT.jsonl [--out benchmarks/results]

``on_gpu.sh`` keeps each row as soon as it is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHMARKS))
from shared.record import stages  # noqa: E402


def main() -> None:
    """Write a file for each stage that has rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kept", type=Path)
    parser.add_argument("--out", type=Path, default=BENCHMARKS / "results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, content in stages(options.kept).items():
        if content["rows"]:
            path = options.out / f"gpu_{name}.json"
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            print(f"{path}: {len(content['rows'])} rows")


if __name__ == "__main__":
    main()
