"""Number formats: what a network computes in, and what its matrix products may round to on the way."""

from __future__ import annotations

from .arithmetic import arithmetic, missing
from .settings import DTYPES, PrecisionSettings

__all__ = ["DTYPES", "PrecisionSettings", "arithmetic", "missing"]
