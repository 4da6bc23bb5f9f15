"""The set-up goes on where it was interrupted, and does nothing twice. No network here."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from fetch_host import SetupFailed, fetch

HOST_FILES = {
    "main.py": "main",
    "nodes.py": "nodes",
    "comfy/sd.py": "sd",
    "comfy_extras/nodes_mask.py": "mask",
    "requirements.txt": "einops\ntorch\n",
}


def source_package(folder: Path, files: dict[str, str] | None = None) -> None:
    members = {f"pkg-1/vendor/ComfyUI/{name}": text for name, text in (files or HOST_FILES).items()}
    members |= {"pkg-1/setup.py": "evil", "pkg-1/vendor/ComfyUI/../../../escaped.py": "evil"}
    with tarfile.open(folder / "pkg-1.tar.gz", "w:gz") as tar:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))


def good_pip(*arguments) -> None:
    source_package(Path(arguments[arguments.index("--dest") + 1]))


def damaged_pip(*arguments) -> None:
    good_pip(*arguments)
    archive = Path(arguments[arguments.index("--dest") + 1]) / "pkg-1.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-40])


def interrupted_pip(*arguments) -> None:
    raise KeyboardInterrupt


class TestFetchingTheHost:
    def test_fresh(self, tmp_path):
        host = tmp_path / "ComfyUI" / "0.30.0"
        fetch("0.30.0", host, good_pip)
        found = {p.relative_to(host).as_posix(): p.read_text() for p in host.rglob("*") if p.is_file()}
        assert found == HOST_FILES
        assert [p.name for p in host.parent.iterdir()] == ["0.30.0"]

    @pytest.mark.parametrize("pip", [damaged_pip, interrupted_pip])
    def test_interrupted_leaves_no_half_host(self, tmp_path, pip):
        host = tmp_path / "0.30.0"
        (tmp_path / ".fetch-killed" / "host").mkdir(parents=True)  # of a call that could not clean up
        with pytest.raises((SetupFailed, KeyboardInterrupt)):
            fetch("0.30.0", host, pip)
        assert list(tmp_path.iterdir()) == []
        fetch("0.30.0", host, good_pip)
        assert (host / "main.py").is_file()

    def test_a_half_host_from_elsewhere_is_not_touched(self, tmp_path):
        host = tmp_path / "0.30.0"
        (host / "models").mkdir(parents=True)
        with pytest.raises(SetupFailed, match="not a whole ComfyUI"):
            fetch("0.30.0", host, good_pip)
        assert [p.name for p in host.iterdir()] == ["models"]
