"""Put something in the place of attributes of single objects, and put back what was there, in the opposite order.

An instance's own attribute shadows that of its class: no class, no other instance and no parameter changes. This is
the only way in which a technique touches a live object.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

_NOTHING = object()
"""Stands for "the object has no attribute of its own by this name"."""


class Shadows:
    """What was put on live objects, the last change last. As a context manager it undoes all of it at the end."""

    def __init__(self) -> None:
        self._undo: list[tuple[dict[str, Any], str, Any, Any] | Callable[[], None]] = []

    def put(self, owner: object, name: str, value: Any) -> None:
        """Let ``owner.name`` be ``value`` until :meth:`undo`."""
        # Straight into the dictionary: the __setattr__ of torch's modules takes ten times as long.
        attributes = owner.__dict__
        self._undo.append((attributes, name, value, attributes.get(name, _NOTHING)))
        attributes[name] = value

    def on_undo(self, action: Callable[[], None]) -> None:
        """Run ``action`` when everything is undone."""
        self._undo.append(action)

    def undo(self) -> None:
        """Put everything back; also after an error in between."""
        while self._undo:
            last = self._undo.pop()
            if isinstance(last, tuple):
                _put_back(*last)
            else:
                last()

    def __enter__(self) -> Shadows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def _put_back(attributes: dict[str, Any], name: str, value: Any, previous: Any) -> None:
    if attributes.get(name, _NOTHING) is not value:
        return  # somebody has put something else there since: it is theirs to take out
    if previous is _NOTHING:
        del attributes[name]
    else:
        attributes[name] = previous
