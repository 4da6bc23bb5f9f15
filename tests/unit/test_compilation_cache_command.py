"""Carrying compiled code to an identical machine: with the fingerprint, and not otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import pytest
from comfy_host.paths import ROOT, host_dir
from paceline.optimizers.compilation.artifacts import ArtifactStore
from paceline.workbench.comfyui import cache_transfer as transfer


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    made = ArtifactStore(tmp_path / "here")
    folder = made.folder({"network": "a.UNet"})
    with folder.in_use():
        (folder.path / "inductor" / "kernel.so").write_bytes(b"code")
    return made


def run(*arguments):
    """As a user runs it: by its path, in a folder that is no Python name."""
    command = [sys.executable, str(ROOT), "cache", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--base-directory", "--user-directory"])
def test_the_folder_is_the_one_that_comfyui_would_use(tmp_path, option):
    user = tmp_path / "user" if option == "--base-directory" else tmp_path
    listed = run("--comfyui", host_dir(), "list", "--", "--cpu", option, tmp_path)
    assert listed.stdout.splitlines()[-1].endswith(f"in {user / '__paceline' / 'compiled'}"), listed.stderr


def test_without_comfyui_it_says_what_to_name(tmp_path):
    refused = run("--comfyui", tmp_path, "list")
    assert refused.returncode == 1
    assert f"There is no ComfyUI in {tmp_path}. Name its folder" in refused.stderr


@pytest.mark.slow
def test_export_and_import_by_path(store, tmp_path):
    file, there = tmp_path / "compiled.zip", tmp_path / "there"
    exported = run("--store", store.root, "export", file)
    fingerprint = exported.stdout.split()[-1]
    refused = run("--store", there, "import", file, "--fingerprint", "0" * 32)
    assert refused.returncode == 1
    assert f"has the fingerprint {fingerprint}" in refused.stderr
    assert not there.exists()
    imported = run("--store", there, "import", file, "--fingerprint", fingerprint)
    assert "1 compiled models imported" in imported.stdout, imported.stderr
    assert "programs: ComfyUI will run them with your rights" in imported.stdout
    folder = ArtifactStore(there).folder({"network": "a.UNet"})
    assert (folder.path / "inductor" / "kernel.so").read_bytes() == b"code"
    with folder.in_use():
        pass
    assert folder.was_used
    assert "a.UNet" in run("--store", there, "list").stdout


def repack(file, target, change):
    """Write a changed copy whose hashes fit, as somebody would who wants it to be imported."""
    import hashlib

    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist() if name != transfer.CONTENTS}
    contents = change(contents)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
        archive.writestr(transfer.CONTENTS, json.dumps(hashes))
    return transfer._fingerprint(hashes)


def test_a_changed_file_another_machine_and_paths_that_lead_out_are_refused(store, tmp_path):
    file, changed = tmp_path / "compiled.zip", tmp_path / "changed.zip"
    fingerprint = transfer.export_entries(store, file)
    there = ArtifactStore(tmp_path / "there")
    repack(file, changed, lambda contents: {name: data + b" " for name, data in contents.items()})
    with pytest.raises(transfer.Refused, match="has the fingerprint"):
        transfer.import_entries(there, changed, fingerprint)

    for name in ("../outside", "/etc/outside", "a\\..\\outside", "C:/outside"):
        wrong = repack(file, changed, lambda contents, name=name: {**contents, name: b"x"})
        with pytest.raises(transfer.Refused, match="outside of the store"):
            transfer.import_entries(there, changed, wrong)

    def elsewhere(contents):
        return {name: data.replace(b'"torch": "', b'"torch": "9') for name, data in contents.items()}

    wrong = repack(file, changed, elsewhere)
    with pytest.raises(transfer.Refused, match="compiled on another machine"):
        transfer.import_entries(there, changed, wrong)
    changed.write_bytes(b"")
    with pytest.raises((transfer.Refused, zipfile.BadZipFile)):
        transfer.import_entries(there, changed, fingerprint)
    assert not there.root.exists()
