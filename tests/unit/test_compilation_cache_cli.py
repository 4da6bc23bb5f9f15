"""Carrying compiled code to an identical machine: with the fingerprint, and not otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import pytest
from comfy_host.paths import ROOT
from paceline.optimizers.compilation import ArtifactStore, cache_cli


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    made = ArtifactStore(tmp_path / "here")
    folder = made.folder({"network": "a.UNet"})
    with folder.in_use():
        (folder.path / "inductor" / "kernel.so").write_bytes(b"code")
    return made


@pytest.mark.slow
def test_export_and_import_by_path(store, tmp_path):
    """As a user runs it: by its path, in a folder that is no Python name."""

    def run(*arguments):
        command = [sys.executable, str(ROOT), "cache", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True)

    file, there = tmp_path / "compiled.zip", tmp_path / "there"
    exported = run("--store", store.root, "export", file)
    fingerprint = exported.stdout.split()[-1]
    refused = run("--store", there, "import", file, "--fingerprint", "0" * 32)
    assert refused.returncode == 1
    assert f"has the fingerprint {fingerprint}" in refused.stderr
    assert not there.exists()
    imported = run("--store", there, "import", file, "--fingerprint", fingerprint)
    assert "1 compiled models imported" in imported.stdout, imported.stderr
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
        contents = {name: archive.read(name) for name in archive.namelist() if name != cache_cli.CONTENTS}
    contents = change(contents)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
        archive.writestr(cache_cli.CONTENTS, json.dumps(hashes))
    return cache_cli._fingerprint(hashes)


def test_a_changed_file_another_machine_and_paths_that_lead_out_are_refused(store, tmp_path):
    file, changed = tmp_path / "compiled.zip", tmp_path / "changed.zip"
    fingerprint = cache_cli.export_entries(store, file)
    there = ArtifactStore(tmp_path / "there")
    repack(file, changed, lambda contents: {name: data + b" " for name, data in contents.items()})
    with pytest.raises(cache_cli.Refused, match="has the fingerprint"):
        cache_cli.import_entries(there, changed, fingerprint)

    for name in ("../outside", "/etc/outside", "a\\..\\outside", "C:/outside"):
        wrong = repack(file, changed, lambda contents, name=name: {**contents, name: b"x"})
        with pytest.raises(cache_cli.Refused, match="outside of the store"):
            cache_cli.import_entries(there, changed, wrong)

    def elsewhere(contents):
        return {name: data.replace(b'"torch": "', b'"torch": "9') for name, data in contents.items()}

    wrong = repack(file, changed, elsewhere)
    with pytest.raises(cache_cli.Refused, match="compiled on another machine"):
        cache_cli.import_entries(there, changed, wrong)
    changed.write_bytes(b"")
    with pytest.raises((cache_cli.Refused, zipfile.BadZipFile)):
        cache_cli.import_entries(there, changed, fingerprint)
    assert not there.root.exists()
