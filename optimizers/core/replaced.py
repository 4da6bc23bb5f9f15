"""Whose function has taken the place of a method of a single object: then that code computes it, and not we."""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path
from typing import Any

_OURS = str(Path(__file__).parents[1])
_PACK = re.compile(r"(?:custom_nodes|extensions(?:-builtin)?|site-packages)[/\\]([^/\\]+)")

OFFLOADED = "_old_forward"
"""Where accelerate keeps a module's forward while its own, which moves weights, stands in its place."""


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
