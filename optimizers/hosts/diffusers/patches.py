"""Put callables in the place of methods of single objects, and take them out again in the opposite order.

An instance's own attribute shadows the method of its class: no class, no other instance and no parameter changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_OFFLOADED = "_old_forward"
"""Where accelerate keeps a module's forward while its own, which moves weights, stands in its place."""


class Patches:
    """What was changed on the objects of one component, last change last."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def on_undo(self, action: Callable[[], None]) -> None:
        """Run ``action`` when everything is undone."""
        self._undo.append(action)

    def shadow(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        """Let ``owner.name`` be ``function``.

        Where accelerate has put a ``forward`` of its own on a module, ours goes inside of it: it is given tensors that
        are on the right device, and stays where it is when offloading is switched off.
        """
        slot = _OFFLOADED if name == "forward" and _OFFLOADED in owner.__dict__ else name
        previous = owner.__dict__.get(slot)
        owner.__dict__[slot] = function
        self._undo.append(lambda: _take_out(owner, name, function, previous))

    def undo(self) -> None:
        """Take everything back."""
        while self._undo:
            self._undo.pop()()


def current(owner: Any, name: str) -> Callable[..., Any]:
    """Return the callable that :meth:`Patches.shadow` would replace now."""
    if name == "forward" and _OFFLOADED in owner.__dict__:
        return owner.__dict__[_OFFLOADED]  # type: ignore[no-any-return]
    return getattr(owner, name)  # type: ignore[no-any-return]


def _take_out(owner: Any, name: str, function: Callable[..., Any], previous: Any) -> None:
    for slot in (name, _OFFLOADED):
        if owner.__dict__.get(slot) is function:
            if previous is not None:
                owner.__dict__[slot] = previous
            elif slot == _OFFLOADED:
                owner.__dict__[slot] = getattr(type(owner), name).__get__(owner)
            else:
                del owner.__dict__[slot]
            return
    # Somebody has wrapped ours and still calls it. It is told by its host being detached, and steps aside.
