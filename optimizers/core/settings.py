"""Settings of a technique: dataclasses whose fields hold default, limits and choices, also for the nodes' inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from .errors import require_boolean, require_choice, require_integer, require_number

LARGEST_SEED = 2**64 - 1
"""Largest accepted seed, the range of the hosts' own seed inputs."""


def later_seed(seed: int, after: int) -> int:
    """Return the seed that comes ``after`` so many; 0 follows the largest."""
    return (seed + after) % (LARGEST_SEED + 1)


def number(default: float, minimum: float, maximum: float) -> Any:
    """Return the field of a number from ``minimum`` to ``maximum``: a whole one if its default is an ``int``."""
    return field(default=default, metadata={"minimum": minimum, "maximum": maximum})


def choice(default: object, choices: Collection[object]) -> Any:
    """Return the field of a setting that is one of ``choices``."""
    return field(default=default, metadata={"choices": choices})


@dataclass(frozen=True)
class Settings:
    """Base class of settings, which checks numbers and choices (texts not); `InvalidSetting` if one is not allowed."""

    def __post_init__(self) -> None:
        for one in fields(self):
            check_value(one.name, getattr(self, one.name), one.default, one.metadata)


def check_value(name: str, value: Any, default: object, limits: Mapping[Any, Any]) -> None:
    """Check a number or choice by its default and limits, as a field holds them; `InvalidSetting` if not allowed."""
    if "choices" in limits:
        require_choice(name, value, tuple(limits["choices"]))
    elif isinstance(default, bool):
        require_boolean(name, value)
    elif "minimum" in limits:
        require = require_integer if isinstance(default, int) else require_number
        require(name, value, limits["minimum"], limits["maximum"])


def setting(owner: type[Settings], name: str) -> Field[Any]:
    """Return the field ``name`` of settings, which holds its default, limits and choices."""
    return next(one for one in fields(owner) if one.name == name)
