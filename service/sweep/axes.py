"""What a sweep goes through, as lines of text that a person writes.

One line for each setting::

    Apply ToMe.ratio = 0.3, 0.5, 0.7
    Compile UNet = off, on

A node is named by its title or its id. Alone it is switched ``on`` or ``off``. Which nodes and inputs there are is not
known here: who reads the lines hands in functions that know.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable

from ...optimizers.core.errors import InvalidSetting, require_choice
from ...optimizers.core.files import parse_json
from ..recipe import Value

Axes = dict[str, tuple[Value, ...]]
"""Names of settings, each with the values it can take."""

Cell = dict[str, Value]
"""A value for each name."""

ABSENT, PRESENT = "off", "on"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 ()]*(\.[a-z][a-z0-9_]*)?")
_EXAMPLE = "Apply ToMe.ratio = 0.3, 0.5, 0.7"
_MOST_CELLS = 10_000


def parse_axes(text: str, full_name: Callable[[str], str], check: Callable[[str, Value], object]) -> Axes:
    """Read axes, one ``name = values`` to the line; ``#`` starts a comment.

    ``full_name`` returns the one name of a setting that has several, ``check`` raises `InvalidSetting` for a setting or
    value that does not exist. `InvalidSetting` quotes the line that is wrong.
    """
    axes: Axes = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        try:
            name, equals, listed = (part.strip() for part in content.partition("="))
            if not equals or not listed or not _NAME.fullmatch(name):
                raise InvalidSetting("It is not of the form name = value, value.", f"Write e.g. {_EXAMPLE}")
            name = full_name(name)
            if name in axes:
                raise InvalidSetting(f"{name} has a line already.", "Put all its values on one line.")
            axes[name] = _read_values(name, listed)
            for value in axes[name]:
                check(name, value)
        except InvalidSetting as error:
            raise InvalidSetting(f"Line {number} is {content!r}. {error.problem}", error.remedy) from None
    if not axes:
        raise InvalidSetting("There are no settings to try.", f"Write e.g. {_EXAMPLE}")
    if math.prod(map(len, axes.values())) > _MOST_CELLS:
        raise InvalidSetting(f"The lines make more than {_MOST_CELLS} combinations.", "List fewer values.")
    return axes


def cells_of(axes: Axes) -> list[Cell]:
    """Return every cell once, without settings of nodes that are off in it."""
    cells = (without_absent(dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values()))
    return list({cell_key(cell): cell for cell in cells}.values())


def cell_key(cell: Cell) -> str:
    """Return the text by which equal cells are known, whatever the order of their names."""
    return json.dumps(cell, sort_keys=True, ensure_ascii=False)


def without_absent(cell: Cell) -> Cell:
    """Return ``cell`` without the settings of nodes that are switched off in it."""
    absent = {name for name, value in cell.items() if "." not in name and value == ABSENT}
    return {name: value for name, value in cell.items() if name.split(".")[0] not in absent or name in absent}


def describe_cell(cell: Cell) -> str:
    """Return e.g. ``ratio 0.5, CompileUNet on``."""
    return ", ".join(f"{name.rpartition('.')[2]} {'none' if value == '' else value}" for name, value in cell.items())


def _read_values(name: str, listed: str) -> tuple[Value, ...]:
    if listed.count(",") > _MOST_CELLS:
        raise InvalidSetting("It has too many values.", f"List {_MOST_CELLS} at most.")
    values = tuple(_read_value(part.strip()) for part in listed.split(",") if part.strip())
    if not values or len(set(map(str, values))) < len(values):
        raise InvalidSetting(f"It has a value of {name} twice, or none.", "List each value once.")
    if "." not in name:
        for value in values:
            require_choice(name, value, (PRESENT, ABSENT))
    return values


def _read_value(text: str) -> Value:
    try:
        value = parse_json(text)
    except ValueError:
        return text
    return value if isinstance(value, (int, float, bool, str)) else text
