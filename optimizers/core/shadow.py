"""Replace attributes of single objects, and put them back in the opposite order.

An instance's own attribute shadows that of its class, so no class, other instance or parameter changes. Techniques
touch live objects in no other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_NOTHING = object()
"""Stands for "the object has no attribute of its own by this name"."""


class Shadows:
    """The replaced attributes of live objects, the latest last; as a context manager it puts all of them back."""

    def __init__(self) -> None:
        self._undo: list[tuple[dict[str, Any], Mapping[str, Any], dict[str, Any]] | Callable[[], None]] = []

    def put(self, owner: object, name: str, value: Any) -> None:
        self.put_all(owner, {name: value})

    def put_all(self, owner: object, values: Mapping[str, Any]) -> None:
        # Straight into the dictionary: the __setattr__ of torch's modules takes ten times as long.
        attributes = owner.__dict__
        taken = not attributes.keys().isdisjoint(values)
        before = {name: attributes[name] for name in values if name in attributes} if taken else {}
        self._undo.append((attributes, values, before))
        attributes.update(values)

    def on_undo(self, action: Callable[[], None]) -> None:
        self._undo.append(action)

    def undo(self) -> None:
        """Put everything back; also after an error in between."""
        while self._undo:
            last = self._undo.pop()
            if isinstance(last, tuple):
                put_back(*last)
                continue
            try:
                last()
            except BaseException:
                self.undo()
                raise

    def __enter__(self) -> Shadows:
        return self

    def __exit__(self, *error: object) -> None:
        self.undo()


def put_back(attributes: dict[str, Any], values: Mapping[str, Any], before: dict[str, Any]) -> None:
    """Take ``values`` out of a dictionary again, which had ``before`` in their places."""
    for name, value in values.items():
        if attributes.get(name, _NOTHING) is not value:
            continue  # other code has replaced the attribute since, and has to put it back itself
        if name in before:
            attributes[name] = before[name]
        else:
            del attributes[name]
