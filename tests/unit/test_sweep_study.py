"""A sweep survives being killed, is never mixed up with another, and is shared by processes without double work."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import traceback
from contextlib import closing
from pathlib import Path

import pytest
from comfy_host.paths import ROOT
from paceline.core.errors import BackendUnavailable, InvalidSetting
from paceline.workbench.sweep.axes import parse_axes
from paceline.workbench.sweep.results import Result
from paceline.workbench.sweep.storage import Storage, sqlite_storage
from paceline.workbench.sweep.study import Sweep, SweepPlan
from waiting import until

SPACE = "ApplyToMe.ratio: 0.1, 0.2, 0.3, 0.4, 0.5"

# A process of its own: it writes a line when it starts to measure a cell and one when it has finished.
WORKER = """
import sys, time
from pathlib import Path
sys.path[:0] = [{tools!r}]
from comfy_host import pack
pack.load_pack()
from paceline.workbench.sweep.results import Result
from paceline.workbench.sweep.axes import parse_axes
from paceline.workbench.sweep.storage import Storage
from paceline.workbench.sweep.study import Sweep, SweepPlan
log, storage, held = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
def measure(cell):
    ratio = cell["ApplyToMe.ratio"]
    with log.open("a") as out: out.write(f"start {{ratio}}\\n")
    while eval(held, {{"started": log.read_text().count("start")}}): time.sleep(0.05)
    return Result(cell, "measured", 1 + ratio, 1.0, ratio / 10)
def done(result):
    with log.open("a") as out: out.write(f"done {{result.cell['ApplyToMe.ratio']}}\\n")
settings = SweepPlan("shared", Storage("shared", storage))
sweep = Sweep(parse_axes({space!r}, ""), settings, {{"model": "m"}})
results = sweep.run(measure, done)
assert len(results) == 5, results
"""


def worker(log: Path, storage: str, held: str) -> subprocess.Popen:
    """Start a process that sweeps. It stays in a cell as long as ``held`` holds of ``started``, how many were begun."""
    code = WORKER.format(tools=str(ROOT / "tools"), space=SPACE)
    return subprocess.Popen([sys.executable, "-c", code, str(log), storage, held])


def lines(log: Path, kind: str) -> list[str]:
    text = log.read_text() if log.exists() else ""
    return [line.split()[1] for line in text.splitlines() if line.startswith(kind)]


def sweep(tmp_path: Path, space: str = SPACE, job: str = "m", **settings) -> Sweep:
    storage = sqlite_storage("a file", tmp_path / "sweeps" / "study.db")
    return Sweep(parse_axes(space, ""), SweepPlan("one", storage, **settings), {"model": job})


def measured(cell) -> Result:
    ratio = cell.get("ApplyToMe.ratio", 0.0)
    return Result(cell, "measured", 1 + ratio, 1.0, ratio**2)


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_without_losing_or_repeating_a_finished_cell(tmp_path):
    log, storage = tmp_path / "log", sqlite_storage("a file", tmp_path / "study.db")
    first = worker(log, storage.url, "started > 3")
    assert until(lambda: len(lines(log, "start")) > 3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    finished = lines(log, "done")
    assert len(finished) == 3
    calls = []
    again = Sweep(parse_axes(SPACE, ""), SweepPlan("shared", storage), {"model": "m"})
    results = again.run(lambda cell: calls.append(str(cell["ApplyToMe.ratio"])) or measured(cell))
    assert len(results) == 5 and sorted([*finished, *calls]) == ["0.1", "0.2", "0.3", "0.4", "0.5"]


@pytest.mark.slow
def test_two_processes_share_the_cells_of_one_database(tmp_path):
    log, storage = tmp_path / "log", sqlite_storage("a file", tmp_path / "study.db")
    other = worker(log, storage.url, "started < 2")  # stays in its first cell until this process has begun one too
    assert until(lambda: lines(log, "start"))
    (before,) = lines(log, "start")
    calls = []

    def measure(cell):
        calls.append(str(cell["ApplyToMe.ratio"]))
        with log.open("a") as out:
            out.write(f"start {calls[-1]}\n")
        return measured(cell)

    results = Sweep(parse_axes(SPACE, ""), SweepPlan("shared", storage), {"model": "m"}).run(measure)
    assert other.wait() == 0
    assert len(results) == 5 and calls[0] != before
    assert len(lines(log, "start")) < 10, "each has left cells to the other"


def test_cells_of_processes_that_died_come_last_and_are_measured(tmp_path):
    study = sweep(tmp_path)
    study._enqueue_missing()
    assert [study._study.ask().number for _ in range(2)] == [0, 1]  # by processes that nobody hears of again
    calls = []
    results = sweep(tmp_path).run(lambda cell: calls.append(cell["ApplyToMe.ratio"]) or measured(cell))
    assert len(results) == 5
    assert calls[:3] == [0.3, 0.4, 0.5] and sorted(calls[3:]) == [0.1, 0.2]


def test_a_finished_sweep_measures_nothing_again_and_may_grow(tmp_path):
    calls = []
    small = sweep(tmp_path, "ApplyToMe.ratio: 0.1, 0.2")
    small.run(lambda cell: calls.append(cell) or measured(cell))
    results = sweep(tmp_path).run(lambda cell: calls.append(cell) or measured(cell))
    assert len(calls) == len(results) == 5
    again = sweep(tmp_path, "ApplyToMe.ratio: 0.1, 0.2").run(lambda cell: pytest.fail("measured again"))
    assert [result.cell["ApplyToMe.ratio"] for result in again] == [0.1, 0.2]


def test_out_of_memory_is_a_result(tmp_path):
    def measure(cell):
        ratio = cell["ApplyToMe.ratio"]
        return Result(cell, "out of memory", text=text) if ratio < 0.35 else measured(cell)

    text = "no room for 2.0 GiB"
    results = sweep(tmp_path).run(measure)
    assert [result.text for result in results[:3]] == [text] * 3
    assert [result.state for result in results] == ["out of memory"] * 3 + ["measured"] * 2
    sweep(tmp_path).run(lambda cell: pytest.fail("measured again"))


def test_a_smaller_grid_leaves_out_what_a_stopped_larger_one_had_queued(tmp_path):
    sweep(tmp_path)._enqueue_missing()
    calls = []
    small = sweep(tmp_path, "ApplyToMe.ratio: 0.4, 0.5")
    assert len(small.run(lambda cell: calls.append(cell["ApplyToMe.ratio"]) or measured(cell))) == 2
    assert calls == [0.4, 0.5]
    assert len(sweep(tmp_path).run(measured)) == 5


def test_a_study_never_mixes_two_jobs(tmp_path):
    sweep(tmp_path)
    with pytest.raises(InvalidSetting, match="'one' was begun with other settings"):
        sweep(tmp_path, job="another model")
    with pytest.raises(InvalidSetting, match="'one' was begun with other settings"):
        sweep(tmp_path, mode="search")


def test_a_search_finds_the_good_region_and_stays_inside_the_space(tmp_path):
    space = "ApplyToMe: off, on\nApplyToMe.ratio: 0.2 .. 0.8\nApplyToMe.sx: 1 .. 4"
    results = sweep(tmp_path, space, mode="search", trials=12).run(measured)
    assert len(results) >= 8  # of 12: the sampler may ask for a cell twice, which is measured and listed once
    on = [result.cell for result in results if result.cell["ApplyToMe"] == "on"]
    assert on and all(0.2 <= cell["ApplyToMe.ratio"] <= 0.8 for cell in on)
    assert all(cell["ApplyToMe.sx"] in range(1, 5) for cell in on)
    off = [result.cell for result in results if result.cell["ApplyToMe"] == "off"]
    assert all(cell == {"ApplyToMe": "off"} for cell in off)


def test_a_search_of_fewer_cells_than_trials_ends_and_measures_each_once(tmp_path):
    calls = []
    search = sweep(tmp_path, "ApplyToMe.ratio: 0.1, 0.2", mode="search", trials=8)
    results = search.run(lambda cell: calls.append(cell) or measured(cell))
    assert len(results) == len(calls) <= 2


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql+psycopg://ada:hunter2@127.0.0.1:1/private?connect_timeout=2", "does not answer"),
        ("postgresql+psycopg://ada:hunter2@127.0.0.1:hunter2/private", "no URL that SQLAlchemy can read"),
        ("hunter2", "no URL that SQLAlchemy can read"),
        ("nosuchdatabase://ada:hunter2@private", "no such kind of database"),
        ("mssql+hunter2://ada:hunter2@private", "no such kind of database"),
        ("firebird+aioodbc://ada:hunter2@private", "no such kind of database"),
        ("sqlite:////proc/private/hunter2/x.db", "its file cannot be read or written"),
    ],
)
def test_no_error_of_a_database_holds_a_part_of_its_address(url, words, caplog):
    settings = SweepPlan("one", Storage("a storage", url))
    with pytest.raises(BackendUnavailable, match=words) as caught:
        Sweep(parse_axes(SPACE, ""), settings, {})
    shown = "".join(traceback.format_exception(caught.value)) + repr(settings) + caplog.text
    # The traceback quotes lines of this file, but no values of them.
    assert not [word for word in ("hunter2", "private", "127.0.0.1") if word in shown]


def test_a_database_that_is_lost_in_the_middle_is_a_sentence(tmp_path):
    study = sweep(tmp_path)
    database = tmp_path / "sweeps" / "study.db"

    def measure(cell):
        with sqlite3.connect(database) as connection:
            connection.execute("DROP TABLE trial_user_attributes")
        return measured(cell)

    with pytest.raises(BackendUnavailable, match="The storage of the study cannot be used") as caught:
        study.run(measure)
    shown = "".join(traceback.format_exception(caught.value))
    assert "INSERT" not in shown and str(tmp_path) not in str(caught.value)


def test_braces_in_an_address_stay_what_they_are(tmp_path):
    """Optuna takes an address for a format string: a password, or a folder, may hold braces."""
    path = tmp_path / "{SCHEMA_VERSION!s:.0}{x}" / "study.db"
    assert len(Sweep(parse_axes(SPACE, ""), SweepPlan("one", sqlite_storage("a file", path)), {}).results()) == 0
    assert path.is_file()


@pytest.mark.parametrize("content", ["no database", "other tables"])
def test_a_file_that_is_no_database_of_optuna_is_named_with_what_to_do(tmp_path, content):
    file = tmp_path / "sweeps" / "study.db"
    file.parent.mkdir()
    if content == "no database":
        file.write_bytes(b"no database at all" * 50)
    else:
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("CREATE TABLE studies (name TEXT PRIMARY KEY, identity TEXT NOT NULL)")
    with pytest.raises(BackendUnavailable, match="its file is damaged, or holds other tables than Optuna's. Move the"):
        sweep(tmp_path)
