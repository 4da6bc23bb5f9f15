"""The set-up goes on where it was interrupted, and does nothing twice. No network here."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import setup_env
from comfy_host.paths import ROOT, HostMissing, host_dir
from fetch_host import SetupFailed, fetch
from setup_env import Environment

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


class RecordingEnvironment(Environment):
    """Notes pip's calls and pretends that they worked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "venv", folder / "cache", None)
        self.calls: list[str] = []
        self.fail_at = ""
        (folder / "cache").mkdir(exist_ok=True)
        self.packages.mkdir(parents=True, exist_ok=True)

    @property
    def packages(self) -> Path:
        return self.folder / "lib" / "python3.11" / "site-packages"

    def pip(self, what, *arguments):
        self.calls.append(what)
        if self.fail_at and self.fail_at in what:
            raise SetupFailed(what)
        self.anew, self.upgraded = "--ignore-installed" in self._anew, "--upgrade" in self._anew
        if "Fetching" in what:
            good_pip(*arguments)

    def works(self, *arguments):
        return setup_env.PROBE_REAL not in arguments

    def set_up(self) -> list[str]:
        self.calls = []
        setup_env.set_up_torch(self)
        setup_env.set_up_host(self)
        setup_env.set_up_tools(self)
        return self.calls


class TestStages:
    @pytest.fixture
    def environment(self, tmp_path, monkeypatch):
        monkeypatch.delenv("COMFYUI_PATH", raising=False)
        monkeypatch.delenv("COMFYUI_VERSION", raising=False)
        monkeypatch.setattr(setup_env, "has_nvidia_gpu", lambda: False)
        monkeypatch.setattr(setup_env, "NEWEST", False)
        return RecordingEnvironment(tmp_path)

    def test_second_call_does_nothing(self, environment, capsys):
        assert len(environment.set_up()) == 5
        assert (environment.cache / "host-requirements.txt").read_text() == "einops\n", "torch is not asked of the host"
        assert environment.set_up() == []
        assert "ready" in capsys.readouterr().out

    def test_stand_ins_are_hooked_in_where_the_real_packages_fail(self, environment):
        environment.set_up()
        assert (environment.packages / "paceline_standins.pth").read_text().startswith("import _paceline_standins")
        compile((environment.packages / "_paceline_standins.py").read_text(), "copy", "exec")

    def test_a_failed_stage_is_where_the_next_call_continues(self, environment):
        environment.fail_at = "ComfyUI's requirements"
        with pytest.raises(SetupFailed):
            environment.set_up()
        environment.fail_at = ""
        assert environment.set_up() == ["Installing ComfyUI's requirements", "Installing the tools"]

    def test_an_interrupted_stage_installs_all_of_its_packages_anew(self, environment):
        environment.set_up()
        (environment.stamps / "tools.json").unlink()
        environment.set_up()
        assert not environment.anew
        (environment.stamps / "tools.json").unlink()
        (environment.stamps / "running").write_text("tools")
        environment.set_up()
        assert environment.anew

    def test_pip_must_keep_the_torch_that_is_there(self, environment):
        for name in ("torch-2.13.0+cpu", "torchaudio-2.11.0", "torchao-0.18.0"):
            (environment.packages / f"{name}.dist-info").mkdir()
        pins = setup_env.constraints(environment).read_text().split()
        assert sorted(pins) == ["torch==2.13.0+cpu", "torchaudio==2.11.0"]

    def test_missing_host_says_what_to_run(self, tmp_path, monkeypatch):
        monkeypatch.delenv("COMFYUI_PATH", raising=False)
        monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
        with pytest.raises(HostMissing, match="make setup"):
            host_dir()


def test_an_old_python_is_refused_in_one_sentence():
    script = str(ROOT / "tools" / "setup_env.py")
    code = f"import runpy, sys; sys.version_info = (3, 9, 1); runpy.run_path({script!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip().startswith("This is Python 3.9, and 3.10 or newer is needed.")
