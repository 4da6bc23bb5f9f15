"""Parts of a batch that compiled code can look for."""

from __future__ import annotations

from .....core.calls import Function

_PARTS = "cond_or_uncond"
"""The option that says which part of the prompt each part of the batch is of."""


def with_parts_as_text(function: Function) -> Function:
    """Return a function that hands on the parts of the batch as a text, which compiled code takes as it is.

    torch takes numbers that have changed before as unknown: patches that look for the negative prompt would not see it.
    """

    def written(value: object) -> object:
        if isinstance(value, dict) and isinstance(value.get(_PARTS), list):
            return {**value, _PARTS: " ".join(map(str, value[_PARTS]))}
        return value

    def call(*args: object, **kwargs: object) -> object:
        return function(*map(written, args), **{name: written(value) for name, value in kwargs.items()})

    return call


def with_parts_as_numbers(function: Function) -> Function:
    """Return a function that is compiled with `with_parts_as_text` around it."""

    def read(value: object) -> object:
        if type(value) is dict and isinstance(value.get(_PARTS), str):
            value = value.copy()
            value[_PARTS] = [int(part) for part in value[_PARTS].split()]
        return value

    def call(*args: object, **kwargs: object) -> object:
        return function(*[read(value) for value in args], **{name: read(value) for name, value in kwargs.items()})

    return call
