"""What is put on live objects comes off again, whatever happens; files that two threads write are whole."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from paceline.optimizers.core.files import write_atomically
from paceline.optimizers.core.shadow import Shadows


def test_an_error_while_undoing_leaves_nothing_behind():
    thing, undone = SimpleNamespace(a=1), []

    def fails():
        raise ValueError("in between")

    with pytest.raises(ValueError, match="in between"), Shadows() as shadows:
        shadows.put(thing, "a", 2)
        shadows.on_undo(lambda: undone.append("first"))
        shadows.on_undo(fails)
        shadows.put(thing, "b", 3)
    assert (vars(thing), undone) == ({"a": 1}, ["first"])


def test_two_threads_that_write_one_file_do_not_meet(tmp_path):
    both, errors = threading.Barrier(2, timeout=60), []

    def write(text):
        def content(path):
            path.write_text(text)
            both.wait()

        try:
            write_atomically(tmp_path / "times.json", content)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (tmp_path / "times.json").read_text() in ("one", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["times.json"]
