"""Wrong values for each kind of input, by what its schema allows."""

from __future__ import annotations

import math
from typing import Any

from schemas import Input

LINKS = ("MODEL", "VAE", "CONDITIONING", "LATENT", "CONTROL_NET")
"""Types of links that a wrong thing can come over, in the order of the outputs of TrustWrongType."""

_ANYTHING: list[Any] = [None, {}, [1, 2, 3], {"__value__": [1]}, "", "x" * 100_000, "\0", "𝕏\u202e\ud7ff\n\t"]
_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, 1e308, -(2**70), 2**70, "seven", "0x10", True]
_TEXTS: list[Any] = [
    "../../etc/x",
    "/etc/x",
    "C:\\x",
    "%year%" * 50,
    "a/b\0c",
    "CON",
    "{}{0!r:.9}",
    "'; DROP TABLE x",
    7,
    math.nan,
]
_CHOICES: list[Any] = ["nonsense", "../x", "Balanced", 7, math.nan, True]
_BOOLEANS: list[Any] = ["maybe", 2, math.nan]


def wrong_values(entry: Input) -> list[Any]:
    """Return values that are wrong for an input, and some that are only strange."""
    if entry.kind in ("INT", "FLOAT"):
        low, high = entry.options.get("min"), entry.options.get("max")
        beyond = [bound for bound in (low, high) if bound is not None]
        step = 1 if entry.kind == "INT" else 0.5
        outside = [low - step] if low is not None else []
        outside += [high + step] if high is not None else []
        return [*_ANYTHING, *_NUMBERS, *beyond, *outside]
    return [*_ANYTHING, *{"COMBO": _CHOICES, "BOOLEAN": _BOOLEANS, "STRING": _TEXTS}[entry.kind]]
