"""The code of docs/python.md, run as it stands there, on a small pipeline where the text expects the large one."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
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
        "Attention", "Compile", "FuseQKV", "Precision", "QuantizeInt8", "ReuseSteps", "ScheduleOnCPU", "TokenMerging",
    }  # fmt: skip
    for name in paceline.__all__:
        assert getattr(paceline, name) is not None
    with pytest.raises(AttributeError, match="optimise"):
        paceline.optimise  # noqa: B018


def test_importing_the_pack_imports_no_diffusers() -> None:
    code = (
        "import sys; sys.path.insert(0, 'testing')\n"
        "from comfy_host import pack; pack.load_pack()\n"
        "assert not {'torch', 'diffusers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
