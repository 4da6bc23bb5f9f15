"""The files of a sweep."""

from __future__ import annotations

import json
from typing import Any


def saved(folders) -> dict[str, Any]:
    newest = sorted((folders / "output" / "paceline").glob("sweep_*.json"))[-1]
    return json.loads(newest.read_text())
