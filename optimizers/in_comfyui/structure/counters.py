"""Patches of other nodes that count their own calls, to know the step: calls that are left out are missing there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.shadow import whose
from .protocols import Options


class Counters:
    """The whole numbers that the patches of a run keep, in themselves or in what they hold, as they are now."""

    def __init__(self, options: Options) -> None:
        self._seen = [(patch, one, dict(_numbers(one))) for patch in _patches(options) for one in _held(patch)]

    def moved(self) -> str:
        """Return whose patch keeps other numbers by now; "" if none does."""
        moved = (whose(patch) for patch, one, before in self._seen if before != dict(_numbers(one)))
        return next(filter(None, moved), "")


def _patches(options: Options) -> Iterator[Any]:
    for kind in ("patches", "patches_replace"):
        for found in options["transformer_options"].get(kind, {}).values():
            yield from found.values() if isinstance(found, Mapping) else found


def _held(patch: Any) -> Iterator[Any]:
    owner = getattr(patch, "__self__", patch)
    yield owner
    for value in getattr(owner, "__dict__", {}).values():
        yield from value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else (value,)


def _numbers(owner: Any) -> Iterator[tuple[str, int]]:
    return ((name, value) for name, value in getattr(owner, "__dict__", {}).items() if type(value) is int)
