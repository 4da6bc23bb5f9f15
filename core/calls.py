"""Types of functions that a wrapper calls without reading their arguments or results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Args = tuple[object, ...]
"""Arguments by position."""

Kwargs = dict[str, object]
"""Arguments by name."""

Function = Callable[..., Any]
"""A function of another package. Where its result is used, write ``Callable[..., Tensor]`` or the like instead."""
