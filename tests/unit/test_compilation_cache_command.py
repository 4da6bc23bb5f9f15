"""Carrying compiled code to an identical machine: with the fingerprint, and not otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import pytest
from cases import often
from comfy_host.paths import ROOT, host_dir
from paceline.optimizers.compilation.cache_folder import CacheFolder
from paceline.workbench.comfyui import cache_transfer as transfer


@pytest.fixture
def cache(tmp_path):
    library = tmp_path / "here" / "inductor" / "kernel.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"code")
    return CacheFolder(tmp_path / "here")


def run(*arguments):
    """As a user runs it: by its path, in a folder that is no Python name."""
    command = [sys.executable, str(ROOT), "cache", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("option", often(["--base-directory"], ["--base-directory", "--user-directory"]))
def test_the_folder_is_the_one_that_comfyui_would_use(tmp_path, option):
    user = tmp_path / "user" if option == "--base-directory" else tmp_path
    listed = run("--comfyui", host_dir(), "list", "--", "--cpu", option, tmp_path)
    assert listed.stdout.splitlines()[-1].endswith(f"in {user / '__paceline' / 'compiled'}"), listed.stderr


def test_without_comfyui_it_says_what_to_name(tmp_path):
    refused = run("--comfyui", tmp_path, "list")
    assert refused.returncode == 1
    assert f"There is no ComfyUI in {tmp_path}. Name its folder" in refused.stderr


@pytest.mark.slow
def test_export_and_import_by_path(cache, tmp_path):
    file, there = tmp_path / "compiled.zip", tmp_path / "there"
    exported = run("--store", cache.path, "export", file)
    fingerprint = exported.stdout.split()[-1]
    imported = run("--store", there, "import", file, "--fingerprint", fingerprint)
    assert "1 files imported" in imported.stdout, imported.stderr
    assert "programs: ComfyUI will run them with your rights" in imported.stdout
    assert (there / "inductor" / "kernel.so").read_bytes() == b"code"


def repack(file, target, change, machine=lambda machine: machine):
    """Write a changed copy whose hashes fit, as somebody would who wants it to be imported."""
    import hashlib

    with zipfile.ZipFile(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if name != transfer.CONTENTS}
        machines = json.loads(archive.read(transfer.CONTENTS))["machines"]
    files = change(files)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    contents = {"machines": [machine(one) for one in machines], "files": hashes}
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(transfer.CONTENTS, json.dumps(contents))
    return transfer._fingerprint(contents)


def test_a_changed_file_another_machine_and_paths_that_lead_out_are_refused(cache, tmp_path):
    file, changed = tmp_path / "compiled.zip", tmp_path / "changed.zip"
    fingerprint = transfer.export_cache(cache, file)
    there = CacheFolder(tmp_path / "there")
    repack(file, changed, lambda contents: {name: data + b" " for name, data in contents.items()})
    with pytest.raises(transfer.Refused, match="has the fingerprint"):
        transfer.import_cache(there, changed, fingerprint)

    for name in ("../outside", "/etc/outside", "a\\..\\outside", "C:/outside"):
        wrong = repack(file, changed, lambda contents, name=name: {**contents, name: b"x"})
        with pytest.raises(transfer.Refused, match="outside of the cache's folder"):
            transfer.import_cache(there, changed, wrong)

    wrong = repack(file, changed, lambda contents: contents, lambda machine: {**machine, "torch": "9.9"})
    with pytest.raises(transfer.Refused, match="compiled on another machine"):
        transfer.import_cache(there, changed, wrong)
    changed.write_bytes(b"")
    with pytest.raises((transfer.Refused, zipfile.BadZipFile)):
        transfer.import_cache(there, changed, fingerprint)
    assert not there.path.exists()


def test_a_file_that_is_damaged_anywhere_is_refused(cache, tmp_path):
    file, there = tmp_path / "compiled.zip", CacheFolder(tmp_path / "there")
    (cache.path / "inductor" / "kernel.py").write_text("".join(f"x{number} = {number}\n" for number in range(300)))
    fingerprint = transfer.export_cache(cache, file)
    whole = file.read_bytes()
    start = whole.index(b"inductor/kernel.py") + len("inductor/kernel.py")
    for place in range(start, start + 20):  # its compressed data
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(transfer.Refused):
            transfer.import_cache(there, file, fingerprint)
    assert not there.path.exists()


def test_an_export_that_fails_leaves_the_one_before(cache, tmp_path, monkeypatch):
    file, library = tmp_path / "compiled.zip", cache.path / "inductor" / "kernel.so"
    transfer.export_cache(cache, file)
    before = file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(type(library), "read_bytes", lambda path: (_ for _ in ()).throw(FileNotFoundError(2, "gone")))
        with pytest.raises(transfer.Refused, match="kernel.so cannot be read: gone"):
            transfer.export_cache(cache, file)
    with pytest.raises(transfer.Refused, match="There is no compiled code"):
        transfer.export_cache(CacheFolder(tmp_path / "elsewhere"), file)
    assert file.read_bytes() == before and not [*tmp_path.glob("*.tmp"), *tmp_path.glob(".*.tmp")]


def test_code_of_a_time_when_the_clock_stood_at_its_beginning_is_exported(cache, tmp_path):
    os.utime(cache.path / "inductor" / "kernel.so", (0, 0))
    fingerprint = transfer.export_cache(cache, tmp_path / "compiled.zip")
    assert transfer.import_cache(CacheFolder(tmp_path / "there"), tmp_path / "compiled.zip", fingerprint) == 1


def test_an_import_does_not_write_into_a_library_that_runs(cache, tmp_path):
    """A program dies when a library that it has loaded is written to, and not when another one takes its name."""
    file, there = tmp_path / "compiled.zip", CacheFolder(tmp_path / "there")
    fingerprint = transfer.export_cache(cache, file)
    library = there.path / "inductor" / "kernel.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"older code")
    with library.open("rb") as loaded:
        transfer.import_cache(there, file, fingerprint)
        assert loaded.read() == b"older code"
    assert library.read_bytes() == b"code"
