"""The package as docs/python.md has it: its code runs as it stands there, and pip installs it without another torch."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from comfy_host.paths import ROOT
from random_pipelines import save_complete


def test_the_code_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    (name,) = re.findall(r'from_pretrained\("([^"]+)"', code)
    save_complete(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    names = runpy.run_path(str(script))
    printed = capsys.readouterr().out
    for title in ("Apply ToMe", "Set Attention Processor", "Fuse QKV"):
        assert re.search(rf"unet: {title}: .*\n    active: ", printed), printed
    assert (tmp_path / "astronaut.png").stat().st_size > 1000
    assert (tmp_path / "both.png").stat().st_size > 1000
    assert "x as fast" in printed
    assert not names["report"].lines


def test_what_the_documentation_says_is_there_is_there() -> None:
    import paceline

    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)) == {
        "Attention", "Compile", "FuseQKV", "Precision", "QuantizeInt8", "ReuseSteps", "TokenMerging",
    }  # fmt: skip
    for name in paceline.__all__:
        assert getattr(paceline, name) is not None
    with pytest.raises(AttributeError, match="optimise"):
        paceline.optimise  # noqa: B018


def test_importing_the_pack_imports_no_diffusers() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from comfy_host import pack; pack.load_pack()\n"
        "assert not {'torch', 'diffusers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


NEEDED = ("__init__.py", "__main__.py", "setup.py", "pyproject.toml", "README.md", "LICENSE", "measure", "nodes",
          "optimizers", "service")  # fmt: skip

CHECK = """
import importlib.util, pathlib, sys
import paceline
from paceline import Attention, Compile, FuseQKV, Precision, QuantizeInt8
from paceline import TokenMerging, optimize, report, restore
assert TokenMerging(ratio=0.5).method == "auto"
assert importlib.util.find_spec("nodes") is None, "the plain name belongs to ComfyUI"
assert importlib.util.find_spec("server") is None, "and so does this one"
assert importlib.util.find_spec("optimizers") is None
assert importlib.util.find_spec("setup") is None
print(pathlib.Path(paceline.__file__).resolve().parent)
"""


@pytest.mark.thorough
def test_pip_install(tmp_path: Path) -> None:
    source, venv = tmp_path / "checkout", tmp_path / "venv"
    source.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    packages = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # torch and diffusers, and what builds, come from here; nothing is downloaded.
    (Path(packages) / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", *options]
    subprocess.run([*command, str(source)], check=True, cwd=tmp_path)
    ran = subprocess.run([python, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    place = Path(ran.stdout.strip().splitlines()[-1])
    assert place == (Path(packages) / "paceline").resolve()
    assert sorted(path.name for path in place.iterdir() if path.name != "__pycache__") == [
        "__init__.py", "__main__.py", "measure", "optimizers",
    ]  # fmt: skip
    assert not list(place.rglob("*comfyui*"))
    told = subprocess.run([python, "-m", "paceline"], cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 2 and "give tune" in told.stderr
    told = subprocess.run([python, "-m", "paceline", "tune", "x.json"], cwd=tmp_path, capture_output=True, text=True)
    assert (told.returncode, told.stderr.count("\n")) == (2, 1) and "needs ComfyUI" in told.stderr  # it is not there
