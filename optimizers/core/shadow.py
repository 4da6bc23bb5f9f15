"""Replace attributes of single objects, and put them back in the opposite order; and tell what others have replaced.

An instance's own attribute shadows that of its class, so no class, other instance or parameter changes. Techniques
touch live objects in no other way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

_NOTHING = object()
"""Stands for "the object has no attribute of its own by this name"."""

_OURS = str(Path(__file__).parents[1])
_PACK = re.compile(r"(?:custom_nodes|extensions(?:-builtin)?|site-packages)[/\\]([^/\\]+)")

OFFLOADED = "_old_forward"
"""Where accelerate keeps a module's forward while its own, which moves weights, stands in its place."""


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


def replacement(owner: object, name: str = "forward") -> Any:
    """Return the replacement of an object's method; None where it has the one of its class.

    Hosts leave a module's own bound method behind when they take something off again. accelerate's ``forward`` passes
    everything on: below it is what computes.
    """
    found = owner.__dict__.get(OFFLOADED) if name == "forward" else None
    found = owner.__dict__.get(name) if found is None else found
    return None if getattr(found, "__func__", None) is getattr(type(owner), name, None) else found


def whose(function: Any) -> str:
    """Return who wrote a function, in a word or two; "" for ours, and for none."""
    while hasattr(function, "func"):  # partial, and ours around what others have put there
        function = function.func
    if function is None:
        return ""
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    file = "" if code is None else code.co_filename
    if file.startswith(_OURS):
        return ""
    pack = _PACK.search(file)
    return f"code in {Path(file).name}" if pack is None else pack[1].removesuffix(".py")


def computed_by(function: Any, hosts: Container[str] = ()) -> str:
    """Return in a sentence that other code computes a layer with ``function``; "" for ours, and for none.

    ``hosts``: packages whose code belongs to the layers.
    """
    who = whose(function)
    return "" if not who or who in hosts else f"{who} computes this layer itself"
