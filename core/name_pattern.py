"""A regular expression for names, matched in time that grows with its length times the name's, whatever it says.

Patterns come with workflows, and ``re`` tries all ways to match one after the other: some patterns keep it busy for
ever. Here all places in the name are followed at once, as the bits of one number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

MOST_CHARACTERS, DEEPEST = 2000, 20

_TOKEN = re.compile(
    r"(?P<open>\((?:\?[:!=])?)|(?P<close>\))|(?P<either>\|)|(?P<edge>[\^$]|\\[AZbB])"
    r"|(?P<one>\\(?:[dDwWsS]|[^a-zA-Z0-9])|\[\^?\]?(?:\\.|[^\]\\])*\]|[^][\\(){}|*+?^$])(?P<times>[*+?]?)\??"
)

Step = Callable[[str, int], int]
"""Takes a name and the places where a match may end, gives those where it may begin; the name's end is bit 0."""


@lru_cache(maxsize=64)
def name_pattern(text: str) -> Callable[[str], bool]:
    r"""Return what tells whether a regular expression is found in a name, as ``re.search`` does.

    Args:
        text: of letters, ``.``, ``[...]``, ``\d`` and its like, each with ``*``, ``+`` or ``?``, of ``|``, ``^``, ``$``
            and of groups without repeats, ``(?!...)`` and ``(?=...)`` among them.

    Raises:
        ValueError: if there is anything else in it; the text says what.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has more than {MOST_CHARACTERS} characters")
    begin, end = _alternatives(text, 0, 0)
    if end < len(text):
        raise ValueError("there is a ) too many")
    return lambda name: bool(begin(name, (2 << len(name)) - 1))


def _alternatives(text: str, at: int, depth: int) -> tuple[Step, int]:
    """Return the step for ``text`` from ``at`` to the end of its group, and where that is."""
    found: list[list[Step]] = [[]]
    while at < len(text) and text[at] != ")":
        token = _TOKEN.match(text, at)
        if token is None or depth > DEEPEST:
            raise ValueError(f"{text[at : at + 10]!r} is not among what is allowed")
        at = token.end()
        if token["open"]:
            inside, at = _alternatives(text, at, depth + 1)
            if at == len(text):
                raise ValueError("a ) is missing")
            found[-1].append(_group(inside, token["open"]))
            at += 1
        elif token["either"]:
            found.append([])
        else:
            found[-1].append(_single(token["edge"] or token["one"], token["times"], bool(token["edge"])))
    return lambda name, ends: _union(found, name, ends), at


def _union(alternatives: list[list[Step]], name: str, ends: int) -> int:
    result = 0
    for steps in alternatives:
        places = ends
        for step in reversed(steps):
            places = step(name, places)
            if not places:
                break
        result |= places
    return result


def _group(inside: Step, kind: str) -> Step:
    if kind == "(?!":
        return lambda name, ends: ends & ~inside(name, (2 << len(name)) - 1)
    if kind == "(?=":
        return lambda name, ends: ends & inside(name, (2 << len(name)) - 1)
    return inside


def _single(text: str, times: str | None, edge: bool) -> Step:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r}: {error}") from None

    def step(name: str, ends: int) -> int:
        fits = _fitting(text, name)
        if edge:
            return ends & fits
        if times in ("*", "+"):
            # Adding carries a bit through the whole run of characters that fit, from where it is on.
            first = (ends << 1) & fits
            more = first | (((first + fits) ^ fits) & fits)
            return more if times == "+" else ends | more
        return (ends << 1) & fits | (ends if times == "?" else 0)

    return step


@lru_cache(maxsize=512)
def _fitting(text: str, name: str) -> int:
    """Return the places of ``name`` that begin with what ``text`` stands for; asked again for each time it is there."""
    return sum(1 << (len(name) - match.start()) for match in re.finditer(text, name))
