"""Benchmark Sweep: which studies and storages can be named, and what is said to mistakes."""

from __future__ import annotations

import json
import socket
import sys

import pytest
from paceline.core.errors import BackendUnavailable, InvalidSetting
from sweep_files import saved


def test_two_studies_of_one_name_are_not_mixed(sweeping, page_server, monkeypatch):
    monkeypatch.setattr(sweeping.studio.nodes["PacelineBenchmarkSweep"], "node_id", lambda: "7")
    sweeping.run("size: 128")
    page_server.sent.clear()
    with pytest.raises(InvalidSetting, match="begun with other settings: sampler was dpmpp_2m, karras, 2 steps"):
        sweeping.run("size: 128", steps=3)
    assert page_server.sent == []  # the node goes on to show the cells that it has


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grid": "ApplyTome.ratio: 0.5"}, "no node ApplyTome. The nodes are: ApplyToMe"),
        ({"grid": "ApplyToMe.ration: 0.5"}, "sets ration of Apply ToMe. Its settings are: preset, method, ratio"),
        ({"grid": "ApplyToMe.ratio: 0.5, 7"}, "sets ratio of Apply ToMe to 7. It is a number from 0"),
        ({"grid": "ApplyToMe.method: murge"}, "to 'murge'. It is one of: auto, merge"),
        ({"grid": "ApplyToMe.use_rand: 1"}, "to 1. It is true or false"),
        ({"grid": "ApplyToMe.model: 1"}, "to 1. It is connected, not set"),
        ({"grid": "size: 130"}, "Use multiples of 8"),
        ({"grid": "QuantizeInt8.exclude: \ud800"}, "grid is text with a NUL or half of a character"),
        ({"grid": "size: 128", "study": "fast"}, "cannot be the name of a preset"),
        ({"grid": "size: 128", "study": "../x"}, "cannot be the name of a preset"),
        ({"grid": "size: 128", "storage": "sqlite:////etc/passwd"}, "a workflow cannot give an address"),
        ({"grid": "size: 128", "storage": "laboratory"}, "names no storage of this server. There are none. Leave it"),
        ({"grid": "size: 128", "filename_prefix": "../../x"}, "leads out of ComfyUI's output folder"),
        ({"grid": "ApplyToMe.ratio: 0.2 .. 0.8"}, "choose search"),
    ],
)
def test_mistakes_are_found_before_anything_runs(sweeping, folders, changes, words):
    with pytest.raises(InvalidSetting, match=words):
        sweeping.run(
            **{"model": None, **changes} if "ApplyT" in changes["grid"] and ".." not in changes["grid"] else changes
        )
    assert not list(folders.rglob("*.json"))


HOSTILE = [
    "postgresql+psycopg://ada:hunter2@127.0.0.1:{port}/x",
    "postgresql+psycopg:///x?host=127.0.0.1&port={port}&password=hunter2",
    "mysql+pymysql://ada:hunter2@127.0.0.1:{port}/x?local_infile=1",
    "{{SCHEMA_VERSION!s:.0}}sqlite:///{folder}/hunter2.db",
    "sqlite:///{folder}/hunter2.db",
    "{folder}/hunter2.db",
    "../hunter2",
    "..\\hunter2",
    "hunter2\0",
    "hunter2\n",
    "lab://hunter2",
    "host=127.0.0.1 port={port} password=hunter2",
    7,
    None,
    ["hunter2"],
]


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_workflow_cannot_say_where_a_storage_is(sweeping, folders, attack):
    """No connection, no file, and nothing of what was given is repeated: it may hold a password."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        if isinstance(attack, str):
            attack = attack.format(port=server.getsockname()[1], folder=folders)
        with pytest.raises(InvalidSetting, match="user/__paceline/storages.json") as caught:
            sweeping.run("size: 128", storage=attack)
        with pytest.raises(BlockingIOError):  # nobody has connected
            server.accept()
    assert "hunter2" not in str(caught.value)
    assert not list(folders.rglob("*.db")) and not list(folders.rglob("*.json"))


def test_the_server_owner_gives_storages_names(sweeping, folders):
    """The name is all that a workflow, and whatever is written, knows of the database."""
    database = folders / "{secret} place" / "of the owner.db"
    database.parent.mkdir()
    owners = folders / "user" / "__paceline" / "storages.json"
    owners.parent.mkdir(parents=True)
    owners.write_text(json.dumps({"lab 1": f"sqlite:///{database}", "spare": "postgresql+psycopg://a:hunter2@b/c"}))
    sweeping.run("size: 128", storage=" lab 1 ")
    assert database.is_file() and not (folders / "user" / "__paceline" / "sweeps").exists()
    assert saved(folders)["storage"] == "lab 1"
    written = b"".join(path.read_bytes() for path in (folders / "output").rglob("*") if path.is_file())
    assert b"sqlite://" not in written and b"secret" not in written
    assert sweeping.run("size: 128", storage="lab 1") and saved(folders)["measured_now"] == 0
    with pytest.raises(InvalidSetting, match="There are: lab 1, spare") as caught:
        sweeping.run("size: 128", storage="lab 2")
    assert "hunter2" not in str(caught.value)
    for broken in ('["lab"', '["lab"]', '{"lab": 1}', '{"http://hunter2": "sqlite://"}', "\ufeff{}"):
        owners.write_text(broken, encoding="utf-8")
        with pytest.raises(InvalidSetting, match="storages.json cannot be read") as caught:
            sweeping.run("size: 128", storage="lab 1")
        assert "hunter2" not in str(caught.value)


def test_without_optuna_it_says_what_to_install_and_the_rest_works(sweeping, monkeypatch):
    """That all nodes load without it: tests/e2e/test_registry_archive.py."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(BackendUnavailable, match="Benchmark Sweep needs Optuna.*Run `pip install optuna`"):
        sweeping.run("size: 128")
    tome = sweeping.studio.tome(sweeping.model, preset="fast")
    assert tome.get_attachment("paceline").find("token_merging") is not None
