"""A grid without Optuna: the same results, and it goes on where it stopped."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from paceline.core.errors import BackendUnavailable, InvalidSetting
from paceline.workbench.sweep import Result, Sweep, SweepSettings, open_sweep, parse_space
from paceline.workbench.sweep.plain_grid import PlainGrid
from paceline.workbench.sweep.storage import sqlite_storage

SPACE = "ApplyToMe.ratio: 0.1, 0.2, 0.3, 0.4"
TEXT = "1.50x; seen"


@pytest.fixture
def without_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a fresh installation."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "paceline.workbench.sweep.plain_grid.find_spec", lambda name: None if name == "optuna" else real(name)
    )
    monkeypatch.setitem(sys.modules, "optuna", None)


def opened(tmp_path: Path, space: str = SPACE, job: str = "m", **settings) -> Sweep | PlainGrid:
    storage = sqlite_storage(tmp_path / "sweeps" / "study.db")
    return open_sweep(parse_space(space, ""), SweepSettings("one", storage, **settings), {"model": job})


def measured(cell) -> Result:
    return Result(cell, "measured", 1 + cell["ApplyToMe.ratio"], 1.0, 0.1, text=TEXT)


@pytest.mark.usefixtures("without_optuna")
def test_a_grid_needs_no_optuna_and_goes_on_where_it_stopped(tmp_path):
    def until_the_third(cell) -> Result:
        if cell["ApplyToMe.ratio"] == 0.3:
            raise KeyboardInterrupt
        return measured(cell)

    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path).run(until_the_third)
    assert [result.cell["ApplyToMe.ratio"] for result in opened(tmp_path).results()] == [0.1, 0.2]
    again = []
    results = opened(tmp_path).run(measured, done=again.append)
    assert [result.cell["ApplyToMe.ratio"] for result in again] == [0.3, 0.4]
    assert [result.speedup for result in results] == [1.1, 1.2, 1.3, 1.4]
    assert [result.text for result in results] == [TEXT] * 4
    assert opened(tmp_path).total == 4
    # A larger grid of the same name measures only what is new.
    assert len(opened(tmp_path, SPACE + ", 0.5").run(measured)) == 5


@pytest.mark.usefixtures("without_optuna")
def test_another_job_is_never_mixed_in(tmp_path):
    opened(tmp_path).run(measured)
    with pytest.raises(InvalidSetting, match="begun with other settings: model was m, is n"):
        opened(tmp_path, job="n")


@pytest.mark.usefixtures("without_optuna")
@pytest.mark.parametrize("settings", [{"mode": "search"}, {"storage": "postgresql://h/x"}])
def test_what_needs_optuna_gives_the_one_command(tmp_path, settings):
    storage = settings.pop("storage", sqlite_storage(tmp_path / "study.db"))
    with pytest.raises(BackendUnavailable, match="which is not installed.*pip install optuna.*or choose search grid"):
        open_sweep(parse_space(SPACE, ""), SweepSettings("one", storage, **settings), {})


def test_a_grid_that_was_begun_without_optuna_keeps_its_results(tmp_path, request):
    request.getfixturevalue("without_optuna")
    opened(tmp_path).run(measured)
    request.getfixturevalue("monkeypatch").undo()
    assert len(opened(tmp_path).results()) == 4
    assert isinstance(opened(tmp_path / "elsewhere"), Sweep)
