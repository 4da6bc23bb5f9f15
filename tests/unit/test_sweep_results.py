"""Tables, the front of best trades, and the choice of a preset."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from paceline.workbench.sweep.plot import pareto_picture
from paceline.workbench.sweep.results import Result, best, pareto_front, to_csv, to_markdown


def result(name, speedup, difference, size=512, state="measured"):
    return Result({"ApplyToMe.preset": name, "size": size}, state, speedup, 1.0, difference, 2**30)


RESULTS = [
    result("quality", 1.1, 0.01),
    result("worse", 1.05, 0.02),
    result("balanced", 1.3, 0.05),
    result("fast", 1.6, 0.4),
    result("twin", 1.6, 0.4),
    result("fast", 1.2, 0.6, size=1024),
    result("huge", None, None, size=4096, state="out of memory"),
]


def names(results):
    return [(one.cell["ApplyToMe.preset"], one.cell["size"]) for one in results]


def test_the_front_has_what_nothing_of_the_same_size_beats():
    assert names(pareto_front(RESULTS)) == [
        ("quality", 512), ("balanced", 512), ("fast", 512), ("twin", 512)]  # fmt: skip


def test_what_is_not_surely_faster_or_another_picture_is_no_trade():
    """A cell that was fast by chance is no best trade where the text says that nothing is surely faster."""
    lucky = Result({"n": 1}, "measured", 19.03, 1.0, 0.1, numbers={"speedup_low": 0.0})
    slower = result("slower", 0.9, 0.0)
    assert pareto_front([lucky, slower, result("fast", 1.2, 0.6, size=1024)]) == []
    assert "best trade" not in to_markdown([lucky, slower])
    sure = Result({"n": 2}, "measured", 1.4, 1.0, 0.2, numbers={"speedup_low": 1.2, "speedup_high": 1.6})
    assert pareto_front([lucky, sure]) == [sure]


def test_the_plot_shows_intervals_the_plain_model_the_limit_and_names():
    sure = Result({"n": 2}, "measured", 1.4, 1.0, 0.2, numbers={"speedup_low": 1.2, "speedup_high": 1.6})
    bare = Result({"n": 2}, "measured", 1.4, 1.0, 0.2)
    assert pareto_picture([sure]).tobytes() != pareto_picture([bare]).tobytes()
    assert pareto_picture([sure], limit=0.25).tobytes() != pareto_picture([sure]).tobytes()
    assert pareto_picture([replace(sure, cell={"n": 3})]).tobytes() != pareto_picture([sure]).tobytes(), "it is named"


def test_a_preset_must_hold_at_every_size_that_was_measured():
    assert best(RESULTS, 0.1).cell["ApplyToMe.preset"] == "balanced"
    assert best(RESULTS, 0.5).cell["ApplyToMe.preset"] == "twin"  # fast differs too much at 1024
    assert best(RESULTS, 1.0).cell["ApplyToMe.preset"] == "twin"  # and is slower there
    assert best(RESULTS, 0.0) is None


def test_tables_have_every_cell():
    rows = list(csv.DictReader(io.StringIO(to_csv(RESULTS))))
    assert [row["state"] for row in rows] == ["measured"] * 6 + ["out of memory"]
    assert float(rows[2]["speedup"]) == 1.3 and rows[6]["speedup"] == ""
    table = to_markdown(RESULTS).splitlines()
    assert len(table) == 2 + len(RESULTS)
    assert "| fast | 512 | 1.60x | 1.000 | 0.400 | - | 1.00 GiB | best trade |" in table
    assert table[-1].endswith("| out of memory |")


def test_a_cell_that_fewer_steps_beat_says_so():
    control = {"fewer_steps": 9, "fewer_steps_difference": 0.05}
    found = [replace(result(name, 1.5, share), numbers=control) for name, share in (("a", 0.04), ("b", 0.06))]
    table = to_markdown([*found, result("c", 1.4, 0.07)])
    assert "| a | 512 | 1.50x | 1.000 | 0.040 | 0.050 (9) | 1.00 GiB | best trade |" in table
    assert "| b | 512 | 1.50x | 1.000 | 0.060 | 0.050 (9) | 1.00 GiB | fewer steps do as well |" in table
    assert "| c | 512 | 1.40x | 1.000 | 0.070 | - | 1.00 GiB |  |" in table
    assert "best trade, but fewer steps do as well |" in to_markdown(found[1:])
    rows = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert [(row["fewer_steps"], row["fewer_steps_difference"]) for row in rows] == [("9", "0.05")] * 2


def test_the_plot_is_drawn_from_nothing_one_or_many():
    blank = pareto_picture([])
    for chosen in (RESULTS[:1], RESULTS, [RESULTS[-1]]):
        picture = pareto_picture(chosen, "a title that is far too long for one line " * 9)
        assert picture.size == blank.size and picture.tobytes() != blank.tobytes()


def test_a_value_is_no_formula_and_no_column():
    """Values are texts of a workflow, which may come from anybody."""
    one = Result({"QuantizeInt8.exclude": "=HYPERLINK(1)|x"}, "measured", 1.1, 1.0, -0.5)
    (row,) = csv.DictReader(io.StringIO(to_csv([one])))
    assert row["QuantizeInt8.exclude"] == "'=HYPERLINK(1)|x"
    assert row["difference_of_seed_change"] == "-0.5"
    header, _, line = to_markdown([one]).splitlines()
    assert line.replace("\\|", "").count("|") == header.count("|")
