"""Errors that say what was asked, why it cannot be done here, and what to do instead.

Every message is one readable paragraph, because ComfyUI shows it verbatim in its error dialog.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar, TypeVar

from .phrases import phrase

T = TypeVar("T")

_LONGEST = 900
"""Characters of a problem that are shown: it quotes the input, and the remedy must fit into the same dialog."""

_IN_NO_FILE = re.compile("[\0\ud800-\udfff]")
"""NUL, and halves of characters, which JSON can hold and UTF-8 cannot."""


class PacelineError(Exception):
    """Base class of every error this package raises on purpose.

    ``problem`` includes the value that was found, ``remedy`` what is allowed, or what to change or install.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem if len(problem) <= _LONGEST else f"{problem[: _LONGEST - 150]} ... {problem[-150:]}"
        self.remedy = remedy
        super().__init__(f"{self.problem} {remedy}".strip())


class InvalidSetting(PacelineError, ValueError):
    """A setting has a value that is not allowed for any model."""


class CannotHelp(PacelineError):
    """A technique can do nothing here, and nothing is wrong: a workflow goes on without it, and says so.

    ``brief`` is the problem in a few words, for a badge, and ``outcome`` what stands before it where the workflow goes
    on. ``must_be_mended`` marks an error that nobody would want to go on with.
    """

    outcome: ClassVar[str] = phrase("not possible here")
    must_be_mended: ClassVar[bool] = False

    def __init__(self, problem: str, remedy: str = "", brief: str = "") -> None:
        super().__init__(problem, remedy)
        self.brief = brief or problem.rstrip(".").replace(";", ",")  # one clause


class UnsupportedModel(CannotHelp):
    """The technique cannot help this model: no matching layers, or a class it does not know."""


class NothingGained(UnsupportedModel):
    """The technique works with this model, but with these settings it changes nothing or makes nothing faster."""

    outcome = phrase("not worth it here")


class WrongObject(UnsupportedModel):
    """The connected object is no usable model: another type, empty, or from a damaged file."""

    must_be_mended = True


class BackendUnavailable(CannotHelp):
    """A kernel or package that was asked for by name cannot run on this machine."""


class HostTooOld(PacelineError):
    """The host (ComfyUI or diffusers) lacks an interface that is needed."""


def require_number(name: str, value: float, minimum: float, maximum: float) -> float:
    """Return ``value`` if it is a real number in ``[minimum, maximum]``; `InvalidSetting` if not, for NaN too."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not minimum <= value <= maximum:
        raise not_allowed(name, value, f"It must be a number from {minimum:g} to {maximum:g}.")
    return value


def require_integer(name: str, value: int, minimum: int, maximum: int) -> int:
    """Return ``value`` if it is an integer in ``[minimum, maximum]``; `InvalidSetting` if not."""
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise not_allowed(name, value, f"It must be a whole number from {minimum} to {maximum}.")
    return value


def require_choice(name: str, value: T, allowed: tuple[object, ...]) -> T:
    """Return ``value`` if it is one of ``allowed``; `InvalidSetting`, which names these, if not."""
    if isinstance(value, bool) or value not in allowed:  # True == 1
        raise not_allowed(name, value, one_of(allowed))
    return value


def require_boolean(name: str, value: bool) -> bool:
    """Return ``value`` if it is true or false; `InvalidSetting` if not."""
    if not isinstance(value, bool):
        raise not_allowed(name, value, "It must be true or false.")
    return value


def not_allowed(name: str, value: object, remedy: str) -> InvalidSetting:
    """Return the error for a setting with a value that it cannot have."""
    try:
        found = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        found = "a number of thousands of digits"
    return InvalidSetting(f"{name} is {found}.", remedy)


def one_of(allowed: Iterable[object]) -> str:
    """Return the remedy, which names the allowed values."""
    return f"It must be one of: {', '.join(map(str, allowed))}."


def kind_of(value: object) -> str:
    """Describe ``value`` in words that need no knowledge of Python."""
    words: dict[type, str] = {type(None): "nothing", str: "text"}
    words |= dict.fromkeys((int, float), "a number") | dict.fromkeys((list, tuple), "a list")
    name = type(value).__name__
    return words.get(type(value)) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def require_text(name: str, value: object) -> str:
    """Return ``value`` if it is text that files and their names can hold; `InvalidSetting` if not."""
    if isinstance(value, str) and not _IN_NO_FILE.search(value):
        return value
    found = "text with a NUL or half of a character" if isinstance(value, str) else kind_of(value)
    raise InvalidSetting(f"{name} is {found}.", "It must be plain text.")


def error_line(error: BaseException, named: bool = False) -> str:
    """Return the first line with content of an error's text, at most 200 characters.

    With ``named``, its type before it, or alone where the text says nothing.
    """
    name, lines = type(error).__name__, str(error).strip().splitlines()
    if not lines:
        return name
    return f"{name}: {lines[0][:200]}" if named else lines[0][:200]
