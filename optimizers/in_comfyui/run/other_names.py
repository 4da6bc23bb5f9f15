"""Copies of ComfyUI's functions that find something else under a global name, so that nothing of ComfyUI changes."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType


def names_in(function: object) -> tuple[str, ...]:
    """Return the names of globals and attributes that a function of Python reads; none of any other function."""
    code = getattr(function, "__code__", None)
    return () if code is None else code.co_names


def with_names(function: FunctionType, names: Mapping[str, object]) -> FunctionType:
    """Return a copy of ``function`` to which some global ``names`` mean something else.

    Without its module's name, as torch would look there for the function.
    """
    known = {**function.__globals__, **names}
    known.pop("__name__", None)
    copy = FunctionType(function.__code__, known, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
