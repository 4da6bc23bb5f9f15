"""Types of calls that are only passed on: whoever wraps a function knows neither its arguments nor its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Args = tuple[object, ...]
"""Arguments by position."""

Kwargs = dict[str, object]
"""Arguments by name."""

Function = Callable[..., Any]
"""A function of somebody else. Where its result is used, write ``Callable[..., Tensor]`` or the like instead."""
