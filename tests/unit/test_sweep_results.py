"""The table of a sweep, and the choice of a preset."""

from __future__ import annotations

from dataclasses import replace

from paceline.workbench.sweep.study import Result, best, to_markdown


def result(name, speedup, difference, **more):
    cell = {"ApplyToMe.preset": name}
    return Result(cell, "measured", speedup, seconds=1.0, difference=difference, memory_bytes=2**30, **more)


LUCKY = result("lucky", 19.03, 0.1, low=0.0)
RESULTS = [
    result("quality", 1.1, 0.01),
    result("balanced", 1.3, 0.05, low=1.2, high=1.4),
    result("fast", 1.6, 0.4),
    LUCKY,
    replace(result("huge", None, None), state="out of memory", memory_bytes=None, seconds=None),
]


def test_the_preset_is_the_fastest_that_is_surely_faster_within_the_difference():
    names = [best(RESULTS, allowed) for allowed in (0.03, 0.1, 0.5, 0.0)]
    assert names == [RESULTS[0], RESULTS[1], RESULTS[2], None]
    assert best([LUCKY, result("slower", 0.9, 0.0)], 1.0) is None


def test_the_table_has_every_cell_the_fastest_first():
    table = to_markdown(RESULTS, RESULTS[1]).splitlines()
    assert len(table) == 2 + len(RESULTS)
    assert table[3] == "| fast | 1.60x | 1.000 | 0.400 | - | 1.00 GiB |  |"
    assert table[4] == "| balanced | 1.30x | 1.000 | 0.050 | - | 1.00 GiB | the preset |"
    assert table[-1] == "| huge | - | - | - | - | - | out of memory |"


def test_a_cell_that_the_plain_model_beats_says_so():
    worth, not_worth = (
        result(name, 1.5, share, control=0.05, control_title="9 steps") for name, share in (("a", 0.04), ("b", 0.06))
    )
    table = to_markdown([worth, not_worth], None)
    assert "| a | 1.50x | 1.000 | 0.040 | 0.050 (9 steps) | 1.00 GiB |  |" in table
    assert "| b | 1.50x | 1.000 | 0.060 | 0.050 (9 steps) | 1.00 GiB | the plain model does as well |" in table
    assert "the preset, but the plain model does as well |" in to_markdown([not_worth], not_worth)


def test_a_value_is_no_column():
    """Values are texts of a workflow, which may come from anybody."""
    header, _, line = to_markdown([Result({"QuantizeInt8.exclude": "a|b"}, "measured", 1.1)], None).splitlines()
    assert line.replace("\\|", "").count("|") == header.count("|")
