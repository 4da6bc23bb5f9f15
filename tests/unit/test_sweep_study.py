"""A sweep: its axes are text that a person writes, it survives being killed, and one table shows its cells."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from comfy_host.paths import ROOT
from paceline.optimizers.core.errors import BackendUnavailable, InvalidSetting
from paceline.service.sweep.axes import cell_key, cells_of, parse_axes
from paceline.service.sweep.study import VARIABLE, Result, Sweep, SweepPlan, best, to_markdown
from waiting import until

RATIOS = {"ApplyToMe.ratio": (0.1, 0.2, 0.3, 0.4, 0.5)}

# A process of its own, which writes a line for each cell that it begins, and stays in the fourth one.
WORKER = """
import sys, time
from pathlib import Path
sys.path[:0] = [{testing!r}]
from comfy_host import pack
pack.load_pack()
from paceline.service.sweep.study import Result, Sweep, SweepPlan
log = Path(sys.argv[1])
def measure(cell):
    with log.open("a") as out: out.write(f"{{cell['ApplyToMe.ratio']}}\\n")
    while len(log.read_text().splitlines()) > 3: time.sleep(0.05)
    return Result(cell, "measured", 1.5, difference=0.1)
list(Sweep({ratios!r}, SweepPlan("one", Path(sys.argv[2])), {{"model": "m"}}).run(measure))
"""


def sweep(tmp_path: Path, axes=RATIOS, job: str = "m", **settings) -> Sweep:
    return Sweep(axes, SweepPlan("one", tmp_path / "sweeps" / "study.db", **settings), {"model": job})


def measured(cell) -> Result:
    ratio = cell.get("ApplyToMe.ratio", 0.0)
    return Result(cell, "measured", 1 + ratio, difference=ratio**2)


def run(study: Sweep, measure=measured) -> tuple[list[Result], list[float]]:
    """Return all results, and the ratios that were measured for them."""
    calls = []
    *_, results = study.run(lambda cell: calls.append(cell.get("ApplyToMe.ratio")) or measure(cell))
    return results, calls


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_without_losing_or_repeating_a_finished_cell(tmp_path):
    log, file = tmp_path / "log", tmp_path / "sweeps" / "study.db"
    code = WORKER.format(testing=str(ROOT / "tests"), ratios=RATIOS)
    first = subprocess.Popen([sys.executable, "-c", code, str(log), str(file)])
    assert until(lambda: log.exists() and len(log.read_text().splitlines()) > 3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    results, calls = run(sweep(tmp_path))
    assert calls == [0.4, 0.5]
    assert [result.cell["ApplyToMe.ratio"] for result in results] == [0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"job": "another model"}, "model was m, is another model"),
        ({"trials": 3}, "which cells was all, is Optuna's choice"),
        ({"axes": {"ApplyToMe.ratio": ("a", "b")}}, "ApplyToMe.ratio was numbers, is a, b"),
        ({"axes": {"ApplyToMe.method": ("merge", "prune")}}, "ApplyToMe.method was merge, is merge, prune"),
    ],
)
def test_a_study_never_mixes_two_jobs(tmp_path, changes, words):
    run(sweep(tmp_path, {**RATIOS, "ApplyToMe.method": ("merge",)}))
    with pytest.raises(InvalidSetting, match=f"'one' was begun with other settings: .*{words}"):
        sweep(tmp_path, **changes)


def test_a_search_measures_as_many_cells_as_it_has_trials_each_once(tmp_path):
    axes = {"ApplyToMe": ("off", "on"), **RATIOS, "ApplyToMe.sx": (1, 2, 3, 4)}
    search = sweep(tmp_path, axes, trials=12)
    results, calls = run(search)
    assert 1 < len(results) == len(calls) <= search.total == 12
    known = [cell for cell in results if "ApplyToMe.ratio" in cell.cell]
    assert all(one.cell["ApplyToMe.ratio"] in RATIOS["ApplyToMe.ratio"] for one in known)
    off = [one.cell for one in results if one.cell["ApplyToMe"] == "off"]
    assert off in ([], [{"ApplyToMe": "off"}])
    assert run(sweep(tmp_path, axes, trials=12))[1] == []


def test_a_file_that_cannot_be_opened_is_said_in_optunas_words():
    with pytest.raises(
        BackendUnavailable, match="Optuna cannot use the storage of the study: OperationalError: .*open"
    ):
        Sweep(RATIOS, SweepPlan("one", Path("/proc/nowhere/x.db")), {})


def test_another_storage_is_where_the_variable_says(tmp_path, monkeypatch):
    there = tmp_path / "elsewhere.db"
    monkeypatch.setenv(VARIABLE, f"sqlite:///{there}")
    assert len(run(sweep(tmp_path))[0]) == 5 and there.exists()
    assert not (tmp_path / "sweeps" / "study.db").exists()
    assert SweepPlan("one", tmp_path).dashboard == f'optuna-dashboard "${VARIABLE}"'


@pytest.mark.parametrize("url", ["postgresql+psycopg://ada:hunter2@127.0.0.1:1/lab", "mysql://ada:hun@ter2@x y/lab"])
def test_no_error_tells_a_storages_password(tmp_path, monkeypatch, url, caplog):
    monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(BackendUnavailable, match=f"Error, with {VARIABLE}") as error:
        sweep(tmp_path)
    assert "ter2" not in f"{error.value}{caplog.text}"


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
    "text",
    [
        "", "# nothing", "Apply ToMe.ratio 0.5", "Apply ToMe.ratio: 0.5", "ApplyToMe = on\n\nApplyToMe.ratio =",
        "A.x = 1\nA.x = 2", "Apply ToMe.x = 1\nApplyToMe.x = 2", "A.x = 512, 512", "A.x = ,", "ApplyToMe = 0.5",
        f"A.x = {', '.join(map(str, range(200)))}\nA.y = {', '.join(map(str, range(200)))}",
    ],
    ids=range(11),
)  # fmt: skip
def test_mistakes_are_named_with_their_line(reads, text):
    reads.refused(InvalidSetting, read, text)


def test_more_values_than_cells_are_refused_before_they_are_looked_at():
    with pytest.raises(InvalidSetting, match="too many values"):
        read("A.x = " + ",".join(map(str, range(20_000))))


def result(name, speedup, difference, **more):
    cell = {"ApplyToMe.preset": name}
    return Result(cell, "measured", speedup, seconds=1.0, difference=difference, **more)


LUCKY = result("lucky", 19.03, 0.1, low=0.0)
RESULTS = [
    result("quality", 1.1, 0.01),
    result("balanced", 1.3, 0.05, low=1.2, high=1.4),
    result("fast", 1.6, 0.4),
    LUCKY,
    replace(result("huge", None, None), state="out of memory", seconds=None),
]


def test_the_preset_is_the_fastest_that_is_surely_faster_within_the_difference():
    names = [best(RESULTS, allowed) for allowed in (0.03, 0.1, 0.5, 0.0)]
    assert names == [RESULTS[0], RESULTS[1], RESULTS[2], None]
    assert best([LUCKY, result("slower", 0.9, 0.0)], 1.0) is None


def test_the_table_has_every_cell_the_fastest_first(reads):
    reads(*to_markdown(RESULTS, RESULTS[1]).splitlines())


def test_a_value_is_no_column():
    """Values are texts of a workflow, which may come from anybody."""
    header, _, line = to_markdown([Result({"QuantizeInt8.exclude": "a|b"}, "measured", 1.1)], None).splitlines()
    assert line.replace("\\|", "").count("|") == header.count("|")
