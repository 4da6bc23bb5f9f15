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
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...core.errors import InvalidSetting, not_allowed
from ...core.phrases import phrase, translatable
from ..recipe import Value

Cell = dict[str, Value]
"""One point of the space: a value for each name."""

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
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Space:
    """Names, each with the values it can take."""

    values: Mapping[str, tuple[Value, ...] | Range]

    @property
    def ranges(self) -> tuple[str, ...]:
        """The names that have a range, which a grid cannot go through."""
        return tuple(name for name, values in self.values.items() if isinstance(values, Range))

    def cells(self) -> list[Cell]:
        """Return every cell once; settings of a node that is switched off in a cell are not in it.

        Raises:
            InvalidSetting: if there is a range, or far too many cells.
        """
        if self.ranges:
            raise InvalidSetting(
                phrase("{names} is a range, and a grid needs single values.", names=", ".join(self.ranges)),
                translatable("List the values with commas, or choose search instead of grid."),
            )
        count = 1
        for values in self.values.values():
            assert not isinstance(values, Range)
            count *= len(values)
        if count > _MOST_CELLS:
            problem = phrase("The grid has {count} cells, and {most} are the most.", count=count, most=_MOST_CELLS)
            raise InvalidSetting(problem, translatable("List fewer values."))
        found: dict[str, Cell] = {}
        for combination in itertools.product(*self.values.values()):  # type: ignore[arg-type]
            cell = without_absent(dict(zip(self.values, combination, strict=True)))
            found[cell_key(cell)] = cell
        return list(found.values())


def parse_space(text: str, example: str) -> Space:
    """Read a space from text, one ``name: values`` to the line; ``#`` starts a comment.

    Args:
        text: the lines.
        example: a line that is right, for errors.

    Raises:
        InvalidSetting: naming the line that cannot be read.
    """
    values: dict[str, tuple[Value, ...] | Range] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        name, colon, listed = (part.strip() for part in content.partition(":"))
        if not colon or not listed or not _NAME.fullmatch(name):
            raise InvalidSetting(
                phrase("Line {line} of the settings to try is {text}.", line=number, text=repr(line.strip())),
                phrase("Write name: value, value, e.g. {example}", example=example),
            )
        if name in values:
            problem = phrase("{name} is there twice (again in line {line}).", name=name, line=number)
            raise InvalidSetting(problem, translatable("Put all its values on one line."))
        values[name] = _read_values(name, listed, number)
    if not values:
        remedy = phrase("Write e.g. {example}", example=example)
        raise InvalidSetting(translatable("There are no settings to try."), remedy)
    return Space(values)


def cell_key(cell: Cell) -> str:
    """Return the text by which equal cells are known, whatever the order of their names."""
    return json.dumps(cell, sort_keys=True, ensure_ascii=False)


def without_absent(cell: Cell) -> Cell:
    """Return ``cell`` without the settings of nodes that are switched off in it."""
    absent = {name for name, value in cell.items() if "." not in name and value == ABSENT}
    return {name: value for name, value in cell.items() if name.split(".")[0] not in absent or name in absent}


def nodes_of(cell: Cell) -> dict[str, dict[str, Value]]:
    """Return the inputs of each node that is not switched off in a cell, in the order in which the space names them."""
    nodes: dict[str, dict[str, Value]] = {}
    for name, value in cell.items():
        node, _, setting = name.partition(".")
        if node in PICTURE or (not setting and value == ABSENT):
            continue
        inputs = nodes.setdefault(node, {})
        if setting:
            inputs[setting] = value
    return nodes


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
                phrase("Line {line}: {text} is not a range for {name}.", line=line, text=listed, name=name),
                translatable("A range has two numbers, the smaller one first."),
            )
        return Range(low, high)
    if listed.count(",") > _MOST_CELLS:
        problem = phrase("Line {line} has too many values.", line=line)
        raise InvalidSetting(problem, phrase("List {count} at most.", count=_MOST_CELLS))
    values = tuple(_check(name, _read_value(part.strip()), line) for part in _split(listed))
    if len(set(map(str, values))) < len(values):
        problem = phrase("Line {line} has a value of {name} twice.", line=line, name=name)
        raise InvalidSetting(problem, translatable("Remove one of them."))
    return values


def _split(listed: str) -> Iterator[str]:
    for part in listed.split(","):
        if part.strip():
            yield part


def _read_value(text: str) -> Value:
    """Return a number or yes/no as such, and anything else as text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (int, float, bool, str)) else text


def _read_number(text: str) -> int | float | None:
    value = _read_value(text)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _check(name: str, value: Value, line: int) -> Value:
    allowed: str = ""
    if name == "size" and not re.fullmatch(r"[1-9]\d{1,4}(x[1-9]\d{1,4})?", str(value)):
        allowed = translatable("It must be pixels, e.g. 512 or 768x1024.")
    elif name == "batch" and not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 4096):
        allowed = phrase("It must be a whole number from {minimum} to {maximum}.", minimum="1", maximum="4096")
    elif "." not in name and name not in PICTURE and value not in (ABSENT, PRESENT):
        allowed = phrase(
            "It must be {present} or {absent}; an input of the node is written {name}.input.",
            present=PRESENT,
            absent=ABSENT,
            name=name,
        )
    if allowed:
        raise not_allowed(phrase("Line {line}: {name}", line=line, name=name), value, allowed)
    return value
