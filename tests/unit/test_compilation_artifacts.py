"""Compiled code on disk: found again, bounded, and never taken from the wrong place."""

from __future__ import annotations

import json
import os
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from paceline.optimizers.compilation import artifact_files
from paceline.optimizers.compilation.artifacts import ArtifactStore
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.settings import CompileSettings
from waiting import until

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    return ArtifactStore(tmp_path / "compiled", limit_bytes=10_000)


def fill(folder, size, used):
    with folder.in_use():
        (folder.path / "inductor" / "kernel.bin").write_bytes(b"x" * size)
    os.utime(folder.path / "entry.json", (used, used))


def test_the_switch_is_set_while_in_use_and_put_back(store, monkeypatch):
    folder = store.folder({"model": "a"})
    with folder.in_use():
        assert os.environ[VARIABLE] == str(folder.path / "inductor")
    assert VARIABLE not in os.environ
    assert not folder.was_used
    again = store.folder({"model": "a"})
    with again.in_use():
        pass
    assert again.was_used
    assert again.path == folder.path
    monkeypatch.setenv(VARIABLE, "/the/users/own")
    with store.folder({"model": "b"}).in_use():
        assert os.environ[VARIABLE] == "/the/users/own"


def test_tritons_folder_is_that_of_the_entry_in_use_and_nobody_elses(store, monkeypatch):
    """torch derives it from inductor's folder, once in a process, and its worker processes keep the last one."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir

    triton, default = "TRITON_CACHE_DIR", os.path.join(default_cache_dir(), "triton", "0")
    folder = store.folder({"model": "a"})
    monkeypatch.setenv(triton, "is put back after the test")
    monkeypatch.delenv(triton)
    with folder.in_use():
        pass
    assert triton not in os.environ  # nothing was built
    with folder.in_use():
        os.makedirs(os.environ[triton])
    assert os.environ[triton] == default  # as torch leaves it there: workers are told of it with their next task
    with pytest.raises(KeyError), folder.in_use():
        assert os.environ[triton] == str(folder.path / "inductor" / "triton")
        assert cache_dir() == str(folder.path / "inductor")
        raise KeyError
    assert os.environ[triton] == default
    monkeypatch.setenv(triton, "/the/users/own")
    with store.folder({"model": "b"}).in_use():
        assert os.environ[triton] == "/the/users/own"


def test_a_folder_that_is_too_deep_for_windows_is_not_used(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv(VARIABLE, raising=False)
    deep = ArtifactStore(tmp_path / ("x" * 100)).folder({"model": "a"})
    with monkeypatch.context() as windows:
        windows.setattr(artifact_files, "sys", SimpleNamespace(platform="win32"))
        with deep.in_use():
            assert VARIABLE not in os.environ
    assert "too long for Windows" in caplog.text
    with ArtifactStore(tmp_path / ("x" * 100)).folder({"model": "a"}).in_use():
        assert VARIABLE in os.environ


def test_a_library_of_somebody_else_costs_nothing_and_is_never_run(store):
    folder = store.folder({"model": "a"})
    with folder.in_use():
        (folder.path / "inductor" / "ours.so").write_bytes(b"ours")
    foreign = folder.path / "inductor" / "foreign.so"
    foreign.write_bytes(b"cut o")
    again = store.folder({"model": "a"})
    with again.in_use():
        assert (again.path / "inductor" / "ours.so").exists()
        assert not foreign.exists()
    assert again.was_used


def test_other_models_other_settings_and_other_machines_have_folders_of_their_own(store, monkeypatch):
    first = store.folder({"model": "a"})
    assert store.folder({"model": "b"}).path != first.path
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert store.folder({"model": "a"}).path.parent != first.path.parent


def test_the_least_recently_used_goes_first(store):
    for index, name in enumerate("abc"):
        fill(store.folder({"model": name}), 2500, used=1000 + index)
    assert [entry.about["model"] for entry in store.entries()] == ["c", "b", "a"]
    fill(store.folder({"model": "a"}), 2500, used=2000)
    fill(store.folder({"model": "d"}), 2500, used=3000)
    kept = {entry.about["model"] for entry in store.entries()}
    assert kept == {"a", "c", "d"}
    fill(store.folder({"model": "c"}), 6000, used=4000)  # one that grows
    assert {entry.about["model"] for entry in store.entries()} == {"c", "d"}
    assert store.size() <= store.limit_bytes


def test_what_was_removed_while_in_use_is_made_again(store):
    """By the button that clears the cache, or by another ComfyUI that needs the space."""
    folder = store.folder({"model": "a"})
    fill(folder, 10, used=1)
    store.trim()
    for _ in range(2):
        shutil.rmtree(store.root)
        with folder.in_use():
            assert os.environ[VARIABLE] == str(folder.path / "inductor")
    with folder.in_use():
        shutil.rmtree(store.root)
    assert [entry.about["model"] for entry in store.entries()] == ["a"]


def test_leftovers_count_and_go_first(store):
    fill(store.folder({"model": "a"}), 2500, used=1)
    leftover = store.root / "0123456789abcdef" / "0123456789abcdef"
    leftover.mkdir(parents=True)
    (leftover / "half.bin").write_bytes(b"x" * 9000)
    assert store.size() > store.limit_bytes
    assert store.trim() == []
    assert not leftover.exists()
    assert [entry.about["model"] for entry in store.entries()] == ["a"]


@pytest.mark.parametrize("damage", [b"x" * 50, b"y" * 100], ids=["cut off", "other bytes"])
def test_a_library_with_other_bytes_is_never_run(store, caplog, damage):
    folder = store.folder({"model": "a"})
    with folder.in_use():
        (folder.path / "inductor" / "kernel.so").write_bytes(b"x" * 100)
    (folder.path / "inductor" / "kernel.so").write_bytes(damage)
    again = store.folder({"model": "a"})
    with again.in_use():
        assert not (again.path / "inductor" / "kernel.so").exists()
    assert not again.was_used
    assert caplog.text.count("damaged") == 1


@pytest.mark.parametrize("content", ["", "{", json.dumps({"format": 99, "about": {}}), json.dumps([1])])
def test_a_damaged_or_foreign_entry_is_replaced_with_one_line(store, caplog, content):
    folder = store.folder({"model": "a"})
    fill(folder, 10, used=1)
    (folder.path / "entry.json").write_text(content)
    assert store.entries() == []
    again = store.folder({"model": "a"})
    with again.in_use():
        assert not (again.path / "inductor" / "kernel.bin").exists()
    assert not again.was_used
    assert caplog.text.count("damaged, or was made for something else") == 1


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
@pytest.mark.parametrize(("mode", "group"), [(0o777, None), (0o775, 12345)])
def test_nothing_is_read_where_others_may_write(store, caplog, mode, group):
    store.root.mkdir(parents=True)
    if group is not None:
        try:
            os.chown(store.root, -1, group)
        except PermissionError:
            pytest.skip("only root gives a folder to a group that it is not in")
    store.root.chmod(mode)
    folder = store.folder({"model": "a"})
    with folder.in_use():
        assert VARIABLE not in os.environ
    assert "others may write to" in caplog.text


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_new_store_is_the_users_own_and_a_group_of_one_is_the_user(store):
    before = os.umask(0)
    try:
        with store.folder({"model": "a"}).in_use():
            assert VARIABLE in os.environ
    finally:
        os.umask(before)
    assert store.root.stat().st_mode & 0o777 == 0o700
    if has_a_group_of_its_own():
        store.root.chmod(0o775)
        with store.folder({"model": "b"}).in_use():
            assert VARIABLE in os.environ


def has_a_group_of_its_own() -> bool:
    import grp
    import pwd

    user = pwd.getpwuid(os.getuid())
    return grp.getgrgid(user.pw_gid).gr_name == user.pw_name


def test_a_broken_artifact_costs_one_compilation_and_not_the_speed(store):
    """What cannot be loaded is thrown away, and the next call compiles anew."""
    attempts = []

    def backend(graph, inputs):
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("kernel.so: file too short")
        return graph

    folder = store.folder({"model": "a"})
    folder.was_used = True
    folder.path.mkdir(parents=True)
    compiled = CompiledFunction(lambda x: x.relu(), CompileSettings(backend="eager"), artifacts=folder, backend=backend)
    x = torch.randn(3)
    for _ in range(2):
        assert torch.equal(compiled(x), x.relu())
    assert not compiled.state.fallback
    assert compiled.state.compiled_calls == 1
    assert compiled.state.eager_calls == {"what was kept from an earlier start could not be used": 1}
    assert not folder.path.exists()


def test_what_still_fails_without_the_artifacts_is_given_up(store):
    attempts = []

    def backend(graph, inputs):
        attempts.append(1)
        raise OSError("kernel.so: file too short")

    folder = store.folder({"model": "a"})
    folder.was_used = True
    compiled = CompiledFunction(lambda x: x.relu(), CompileSettings(backend="eager"), artifacts=folder, backend=backend)
    for _ in range(4):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3))
    assert len(attempts) == 2 and compiled.state.fallback


def test_how_long_a_compilation_took_is_known_the_next_time(store):
    """To the next start of the program, for the same function of the same network; not for what comes after it."""
    seen = []

    class Observer:
        def progress(self, progress):
            seen.append(progress)

        def check_cancelled(self):
            pass

    def backend(graph, inputs):
        assert until(lambda: seen)
        return graph

    def start(name):
        torch._dynamo.reset()
        settings = CompileSettings(backend="inductor", dynamic="false")
        folder = store.folder({"model": "a"})
        made = CompiledFunction(lambda x: x.relu(), settings, name=name, artifacts=folder, backend=backend)
        made.observer = Observer()
        return made

    def called(made, size):
        seen.clear()
        made(torch.ones(size))
        assert until(lambda: seen[-1].phase == "ready")
        return {progress.expected_seconds for progress in seen}

    first = start("network")
    assert called(first, 3) == {None}
    assert "ready" not in [progress.phase for progress in seen[:-1]] and len(seen) > 1
    assert re.fullmatch(r"compiled in \d\d:\d\d · 1 graph", seen[-1].text)
    second = start("network")
    (expected,) = called(second, 3)
    assert expected == pytest.approx(first.state.seconds) and expected > 0.9
    assert called(second, 4) == {None}
    assert called(start("another part"), 3) == {None}
