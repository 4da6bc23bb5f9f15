"""The plot of step_caches.py: how near the picture stays, over the evaluations of the network that are left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw nearness over evaluations, a column of panels for each solver."""
