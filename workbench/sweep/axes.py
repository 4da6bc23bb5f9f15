"""What a sweep goes through, written as text that a person can read.

One line for each setting::

    Node.input: 0.25, 0.5, 0.75
    Node.other_input: text, other text
    OtherNode: off, on
    size: 512, 768x1024
    batch: 1, 2

A node is named by its id or its title. Alone it is switched ``on`` or ``off``; ``size`` (in pixels, one side or width
x height) and ``batch`` belong to the picture. ``0.2 .. 0.8`` is a range, for a search. Which nodes and inputs there are
is not known here: the nodes check the names.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...core.errors import InvalidSetting, not_allowed
from ..recipe import Value

Cell = dict[str, Value]
"""A value for each name."""

ABSENT, PRESENT = "off", "on"
PICTURE = ("size", "batch")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 ()]*(\.[a-z][a-z0-9_]*)?")
_MOST_CELLS = 10_000


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones if both are."""

    low: float
    high: float

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Axes:
    """Names of settings, each with the values it can take: the search space of a sweep."""

    values: Mapping[str, tuple[Value, ...] | Range]

    def cells(self) -> list[Cell]:
        """Return every cell once, without settings of nodes that are off in it.

        `InvalidSetting` if there is a range, or far too many cells.
        """
        ranges = [name for name, values in self.values.items() if isinstance(values, Range)]
        if ranges:
            raise InvalidSetting(
                f"{', '.join(ranges)} is a range, and a grid needs single values.",
                "List the values with commas, or choose search instead of grid.",
            )
        lists = [values for values in self.values.values() if not isinstance(values, Range)]
        count = math.prod(map(len, lists))
        if count > _MOST_CELLS:
            raise InvalidSetting(f"The grid has {count} cells, and {_MOST_CELLS} are the most.", "List fewer values.")
        found: dict[str, Cell] = {}
        for combination in itertools.product(*lists):
            cell = without_absent(dict(zip(self.values, combination, strict=True)))
            found[cell_key(cell)] = cell
        return list(found.values())


def parse_axes(text: str, example: str) -> Axes:
    """Read axes, one ``name: values`` to the line; ``#`` starts a comment.

    `InvalidSetting` names the line that cannot be read, and shows ``example``.
    """
    values: dict[str, tuple[Value, ...] | Range] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        name, colon, listed = (part.strip() for part in content.partition(":"))
        if not colon or not listed or not _NAME.fullmatch(name):
            raise InvalidSetting(
                f"Line {number} of the settings to try is {line.strip()!r}.",
                f"Write name: value, value, e.g. {example}",
            )
        if name in values:
            raise InvalidSetting(f"{name} is there twice (again in line {number}).", "Put all its values on one line.")
        values[name] = _read_values(name, listed, number)
    if not values:
        raise InvalidSetting("There are no settings to try.", f"Write e.g. {example}")
    return Axes(values)


def cell_key(cell: Cell) -> str:
    """Return the text by which equal cells are known, whatever the order of their names."""
    return json.dumps(cell, sort_keys=True, ensure_ascii=False)


def without_absent(cell: Cell) -> Cell:
    """Return ``cell`` without the settings of nodes that are switched off in it."""
    absent = {name for name, value in cell.items() if "." not in name and value == ABSENT}
    return {name: value for name, value in cell.items() if name.split(".")[0] not in absent or name in absent}


def describe_cell(cell: Cell) -> str:
    """Return e.g. ``ratio 0.5, size 512``."""
    return ", ".join(f"{name.rpartition('.')[2]} {'none' if value == '' else value}" for name, value in cell.items())


def picture_of(cell: Cell) -> tuple[int | None, int | None, int | None]:
    """Return width and height in pixels and the batch that a cell asks for; None where it does not say."""
    size, batch = cell.get("size"), cell.get("batch")
    pictures = None if batch is None else int(batch)
    if size is None:
        return None, None, pictures
    width, _, height = str(size).partition("x")
    return int(width), int(height or width), pictures


def _read_values(name: str, listed: str, line: int) -> tuple[Value, ...] | Range:
    # Not a regular expression: on a long line of dots one would try every pair of places.
    first, dots, last = (part.strip() for part in listed.partition(".."))
    if dots and len(first.split()) == len(last.split()) == 1:
        low, high = _read_number(first), _read_number(last)
        if low is None or high is None or not low < high or name in PICTURE:
            raise InvalidSetting(
                f"Line {line}: {listed} is not a range for {name}.",
                "A range has two numbers, the smaller one first.",
            )
        return Range(low, high)
    if listed.count(",") > _MOST_CELLS:
        raise InvalidSetting(f"Line {line} has too many values.", f"List {_MOST_CELLS} at most.")
    values = tuple(_check(name, _read_value(part.strip()), line) for part in listed.split(",") if part.strip())
    if len(set(map(str, values))) < len(values):
        raise InvalidSetting(f"Line {line} has a value of {name} twice.", "Remove one of them.")
    return values


def _read_value(text: str) -> Value:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (int, float, bool, str)) else text


def _read_number(text: str) -> int | float | None:
    value = _read_value(text)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _check(name: str, value: Value, line: int) -> Value:
    allowed = ""
    if name == "size" and not re.fullmatch(r"[1-9]\d{1,4}(x[1-9]\d{1,4})?", str(value)):
        allowed = "It must be pixels, e.g. 512 or 768x1024."
    elif name == "batch" and not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 4096):
        allowed = "It must be a whole number from 1 to 4096."
    elif "." not in name and name not in PICTURE and value not in (ABSENT, PRESENT):
        allowed = f"It must be {PRESENT} or {ABSENT}; an input of the node is written {name}.input."
    if allowed:
        raise not_allowed(f"Line {line}: {name}", value, allowed)
    return value
