"""What a sweep goes through is text that a person writes, so it is read with care."""

from __future__ import annotations

import contextlib

import pytest
from paceline.core.errors import InvalidSetting
from paceline.workbench.sweep.axes import Range, cell_key, parse_axes, picture_of

EXAMPLE = "ApplyToMe.ratio: 0.25, 0.5"
TEXT = """
# what a person writes
ApplyToMe: off, on
ApplyToMe.ratio: 0.25, 0.5    # two of them
ApplyToMe.use_rand: true
size: 512, 768x1024
batch: 1, 2
"""


def test_a_grid_has_every_cell_once():
    cells = parse_axes(TEXT, EXAMPLE).cells()
    # off: 2 sizes x 2 batches, whatever the ratio; on: 2 ratios x 2 sizes x 2 batches
    assert len(cells) == 4 + 8
    assert len({cell_key(cell) for cell in cells}) == len(cells)
    assert {"ApplyToMe": "off", "size": 512, "batch": 2} in cells
    on = {"ApplyToMe": "on", "ApplyToMe.ratio": 0.5, "ApplyToMe.use_rand": True}
    assert on | {"size": "768x1024", "batch": 1} in cells


def test_cells_become_pictures():
    assert picture_of({"ApplyToMe": "on", "size": "768x1024"}) == (768, 1024, None)
    assert picture_of({"size": 512, "batch": 3}) == (512, 512, 3)
    assert picture_of({}) == (None, None, None)


def test_ranges_are_for_a_search():
    space = parse_axes("ApplyToMe.ratio: 0.2 .. 0.8\nApplyToMe.sx: 1 .. 5", EXAMPLE)
    assert space.values == {"ApplyToMe.ratio": Range(0.2, 0.8), "ApplyToMe.sx": Range(1, 5)}
    assert [values.whole for values in space.values.values()] == [False, True]
    with pytest.raises(InvalidSetting, match=r"ApplyToMe\.ratio, ApplyToMe\.sx is a range"):
        space.cells()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"no settings to try\. Write e\.g\. ApplyToMe\.ratio: 0\.25, 0\.5"),
        ("# nothing", "no settings to try"),
        ("ApplyToMe.ratio 0.5", "Line 1"),
        ("size: 512\nApplyToMe.ratio:", "Line 2"),
        ("size: 512\nsize: 768", "size is there twice"),
        ("size: 512, 512", "a value of size twice"),
        ("size: big", "size is 'big'"),
        ("batch: 0", "batch is 0"),
        ("batch: true", "batch is True"),
        ("ApplyToMe: 0.5", "ApplyToMe.input"),
        ("ApplyToMe.ratio: 0.8 .. 0.2", "not a range"),
        ("size: 512 .. 1024", "not a range for size"),
        ("ApplyToMe.ratio: " + ", ".join(map(str, range(200))) + "\nApplyToMe.sx: " + ", ".join(map(str, range(200))),
         "40000 cells"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_line(text, words):
    with pytest.raises(InvalidSetting, match=words):
        parse_axes(text, EXAMPLE).cells()


@pytest.mark.parametrize(
    "line",
    [
        "ApplyToMe.ratio: " + "." * 300_000 + " x y",
        "ApplyToMe.ratio: " + "[" * 300_000,
        "ApplyToMe.ratio: " + "a" * 300_000 + " " * 300_000 + "a",
        "ApplyToMe.ratio: " + "1 .. " * 100_000,
        "ApplyToMe.ratio: " + "9" * 300_000,
        "A" * 300_000 + "!: 1",
    ],
    ids=["dots", "brackets", "spaces", "ranges", "digits", "name"],
)
def test_no_line_keeps_the_server_busy(line):
    """The lines come with a workflow, which may come from anybody. Pytest's time limit ends one that takes for ever."""
    with contextlib.suppress(InvalidSetting):
        parse_axes(line, "")


def test_more_values_than_cells_are_refused_before_they_are_looked_at():
    with pytest.raises(InvalidSetting, match="Line 1 has too many values"):
        parse_axes("ApplyToMe.ratio: " + ",".join(map(str, range(20_000))), "")
