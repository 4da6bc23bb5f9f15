"""The folder of compiled code: found again, bounded, and never taken from the wrong place."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from paceline.optimizers.compilation import cache_folder
from paceline.optimizers.compilation.cache_folder import VARIABLE, CacheFolder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "is put back after the test")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(cache_folder, "_refused", set())
    monkeypatch.setattr(cache_folder, "LIMIT_BYTES", 10_000)
    return CacheFolder(tmp_path / "compiled")


def fill(folder, name, size, used):
    path = folder.path / "inductor" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (used, used))


def test_torch_is_told_once_and_a_folder_of_the_users_own_stays(folder, monkeypatch):
    from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir

    for before in (None, default_cache_dir()):  # torch itself sets the variable when it looks for the folder
        if before is not None:
            monkeypatch.setenv(VARIABLE, before)
        for _ in range(2):
            folder.use()
            assert cache_dir() == os.environ[VARIABLE] == str(folder.path / "inductor")
    monkeypatch.setenv(VARIABLE, "/the/users/own")
    folder.use()
    assert os.environ[VARIABLE] == "/the/users/own"


def test_a_folder_that_is_too_deep_for_windows_is_not_used(folder, tmp_path, monkeypatch, caplog):
    deep = CacheFolder(tmp_path / ("x" * 120))
    with monkeypatch.context() as windows:
        windows.setattr(cache_folder, "sys", SimpleNamespace(platform="win32"))
        deep.use()
        assert VARIABLE not in os.environ
    assert "too long for Windows" in caplog.text
    deep.use()
    assert VARIABLE in os.environ


def test_what_was_not_used_for_the_longest_time_goes_first(folder):
    for index, name in enumerate("abc"):
        fill(folder, name, 4000, used=1000 + index)
    fill(folder, "a", 4000, used=2000)
    assert folder.size() == 12_000
    folder.use()
    assert sorted(path.name for path in (folder.path / "inductor").iterdir()) == ["a", "c"]
    assert folder.size() <= cache_folder.LIMIT_BYTES


def test_a_file_that_cannot_be_removed_stays_and_the_folder_is_used(folder, monkeypatch):
    """As a library that is loaded on Windows."""
    unlink = Path.unlink

    def locked(path, **options):
        if path.name == "a":
            raise PermissionError(13, "used by another process")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", locked)
    for index, name in enumerate("abc"):
        fill(folder, name, 4000, used=1000 + index)
    folder.use()
    assert sorted(path.name for path in (folder.path / "inductor").iterdir()) == ["a", "c"]
    assert os.environ[VARIABLE] == str(folder.path / "inductor")


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
@pytest.mark.parametrize(("mode", "group"), [(0o777, None), (0o775, 12345)])
def test_nothing_is_read_where_others_may_write(folder, caplog, mode, group):
    folder.path.mkdir(parents=True)
    if group is not None:
        try:
            os.chown(folder.path, -1, group)
        except PermissionError:
            pytest.skip("only root gives a folder to a group that it is not in")
    folder.path.chmod(mode)
    for _ in range(2):
        folder.use()
        assert VARIABLE not in os.environ
    assert caplog.text.count("others may write to it") == 1
    folder.path.chmod(0o700)
    folder.use()
    assert VARIABLE in os.environ
    folder.path.chmod(0o777)
    folder.use()
    assert VARIABLE not in os.environ


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_new_folder_is_the_users_own_and_a_group_of_one_is_the_user(folder, monkeypatch):
    before = os.umask(0)
    try:
        folder.use()
    finally:
        os.umask(before)
    assert VARIABLE in os.environ
    assert folder.path.stat().st_mode & 0o777 == 0o700
    if has_a_group_of_its_own():
        folder.path.chmod(0o775)
        monkeypatch.delenv(VARIABLE)
        folder.use()
        assert VARIABLE in os.environ


def has_a_group_of_its_own() -> bool:
    import grp
    import pwd

    user = pwd.getpwuid(os.getuid())
    return grp.getgrgid(user.pw_gid).gr_name == user.pw_name
