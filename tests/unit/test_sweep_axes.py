"""What a sweep goes through is text that a person writes, so it is read with care."""

from __future__ import annotations

import contextlib

import pytest
from paceline.core.errors import InvalidSetting
from paceline.workbench.sweep.axes import cell_key, cells_of, parse_axes

TEXT = """
# what a person writes
Apply ToMe = off, on
ApplyToMe.ratio = 0.25, 0.5    # two of them
ApplyToMe.use_rand = true
QuantizeInt8.include=attn
"""


def read(text):
    return parse_axes(text, lambda name: name.replace("Apply ToMe", "ApplyToMe"), lambda name, value: None)


def test_a_grid_has_every_cell_once():
    cells = cells_of(read(TEXT))
    # off: one, whatever the ratio; on: 2 ratios
    assert cells == [
        {"ApplyToMe": "off", "QuantizeInt8.include": "attn"},
        {"ApplyToMe": "on", "ApplyToMe.ratio": 0.25, "ApplyToMe.use_rand": True, "QuantizeInt8.include": "attn"},
        {"ApplyToMe": "on", "ApplyToMe.ratio": 0.5, "ApplyToMe.use_rand": True, "QuantizeInt8.include": "attn"},
    ]
    assert cell_key(cells[1]) == cell_key(dict(reversed(cells[1].items())))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"no settings to try\. Write e\.g\. Apply ToMe\.ratio = 0\.3, 0\.5, 0\.7"),
        ("# nothing", "no settings to try"),
        ("Apply ToMe.ratio 0.5", r"Line 1 is 'Apply ToMe.ratio 0.5'. It is not of the form .* Write e\.g\. Apply ToMe"),
        ("Apply ToMe.ratio: 0.5", "not of the form"),
        ("ApplyToMe = on\n\nApplyToMe.ratio =", r"Line 3 is 'ApplyToMe.ratio ='\. It is not of the form"),
        ("A.x = 1\nA.x = 2", r"Line 2 is 'A.x = 2'\. A.x has a line already\. Put all its values on one line"),
        ("Apply ToMe.x = 1\nApplyToMe.x = 2", "ApplyToMe.x has a line already"),
        ("A.x = 512, 512", r"a value of A\.x twice, or none\. List each value once"),
        ("A.x = ,", "or none"),
        ("ApplyToMe = 0.5", r"Line 1 is 'ApplyToMe = 0.5'\. ApplyToMe is 0.5\. It must be one of: on, off"),
        (f"A.x = {', '.join(map(str, range(200)))}\nA.y = {', '.join(map(str, range(200)))}",
         "more than 10000 combinations. List fewer"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_line(text, words):
    with pytest.raises(InvalidSetting, match=words):
        read(text)


@pytest.mark.parametrize(
    "line",
    [
        "A.x = " + "[" * 300_000,
        "A.x = " + "a" * 300_000 + " " * 300_000 + "a",
        "A.x = " + "9" * 300_000,
        "A.x " + "=" * 300_000,
        "A" * 300_000 + "! = 1",
    ],
    ids=["brackets", "spaces", "digits", "equals", "name"],
)
def test_no_line_keeps_the_server_busy(line):
    """The lines come with a workflow, which may come from anybody. Pytest's time limit ends one that takes for ever."""
    with contextlib.suppress(InvalidSetting):
        read(line)


def test_more_values_than_cells_are_refused_before_they_are_looked_at():
    with pytest.raises(InvalidSetting, match="too many values"):
        read("A.x = " + ",".join(map(str, range(20_000))))
