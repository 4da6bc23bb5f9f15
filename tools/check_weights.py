"""Check that no weights are in the tree twice, under whatever name.

    python tools/check_weights.py

History keeps each version, and whoever clones all of it downloads each.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npz", ".gguf", ".onnx")
ROOT = Path(__file__).resolve().parents[1]


def copies(listing: str) -> list[list[str]]:
    """Return the paths that hold the same weights, of what ``git ls-files --stage`` lists."""
    places: dict[str, list[str]] = defaultdict(list)
    for line in listing.splitlines():
        facts, path = line.split("\t", 1)
        if path.endswith(WEIGHTS):
            places[facts.split()[1]].append(path)
    return [paths for paths in places.values() if len(paths) > 1]


if __name__ == "__main__":
    listed = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, text=True, stdout=subprocess.PIPE, check=False)
    found = copies(listed.stdout)
    for paths in found:
        print(f"{' and '.join(paths)} hold the same weights: keep one of them.")
    sys.exit(bool(found))
