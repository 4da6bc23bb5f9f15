"""Waiting for a state: never for a time, as machines differ."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], object], seconds: float = 240.0) -> bool:
    """Wait until ``holds()`` is true, and return whether it came to that; ``seconds`` are for the slowest machine."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
