"""Carrying compiled code to an identical machine: with the fingerprint, and not otherwise."""

from __future__ import annotations

import json
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
