"""Benchmark Sweep: what is said to mistakes, and what a stranger's workflow cannot do."""

from __future__ import annotations

import socket
import sys

import pytest
from paceline.optimizers.core.errors import BackendUnavailable, InvalidSetting


@pytest.mark.parametrize(
    "changes",
    [
        {"grid": "Apply Tomato.ratio = 0.5"},
        {"grid": "Apply ToMe.ration = 0.5"},
        {"grid": "ApplyToMe.method = murge"},
        {"grid": "ApplyToMe.model = 1"},
        {"grid": "CompareModels = on"},
        {"grid": "QuantizeInt8.exclude = \ud800"},
        {"study": "fast"},
        {"trials": -1},
    ],
    ids=range(8),
)
def test_mistakes_are_found_before_anything_runs(reads, sweeping, folders, changes):
    reads.refused(InvalidSetting, sweeping.run, **{"grid": "ApplyToMe.preset = quality", "model": None, **changes})
    assert not list(folders.rglob("*.db")) and not list(folders.rglob("*.json"))


def test_a_workflow_cannot_say_where_a_storage_is(sweeping, folders):
    """No input takes an address, and the study's name, the only text that reaches Optuna, is no part of a path."""
    from comfy_api.latest import io

    schema = sweeping.studio.nodes["PacelineBenchmarkSweep"].define_schema()
    assert [entry.id for entry in schema.inputs if isinstance(entry, io.String.Input)] == ["grid", "study"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"postgresql+psycopg://ada@127.0.0.1:{server.getsockname()[1]}/x"
        for study in (url, "sqlite:////tmp/x.db", "../x", "a\0", "{SCHEMA_VERSION}"):
            with pytest.raises(InvalidSetting):
                sweeping.run("ApplyToMe.preset = quality", study=study)
        with pytest.raises(BlockingIOError):  # nobody has connected
            server.accept()
    assert not list(folders.rglob("*.db"))


def test_without_optuna_it_says_what_to_install_and_the_rest_works(sweeping, monkeypatch):
    """That all nodes load without it: tests/e2e/test_registry_archive.py."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(BackendUnavailable, match="Benchmark Sweep needs Optuna.*Run `pip install optuna`"):
        sweeping.run("ApplyToMe.preset = quality")
    tome = sweeping.studio.tome(sweeping.model, preset="quality")
    assert tome.get_attachment("paceline").find("token_merging") is not None
