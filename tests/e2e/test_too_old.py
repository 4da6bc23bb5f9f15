"""A ComfyUI that is too old starts and runs without the pack. In-process: ``tests/comfyui/test_stack.py``."""

from __future__ import annotations

import os
import shutil

import pytest
from comfy_host.paths import host_dir
from comfy_host.server import ComfyServer

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


@pytest.fixture
def old_comfyui(tmp_path, monkeypatch):
    """This ComfyUI without something that came with the oldest version we support, and with an earlier number."""
    real, old = host_dir(), tmp_path / "ComfyUI"
    (old / "comfy").mkdir(parents=True)
    for path in real.iterdir():
        if path.name.endswith(".py"):  # Python looks for modules where the real file of a program is
            shutil.copy(path, old)
        elif path.name not in ("comfy", "user", "output", "input", "custom_nodes"):
            os.symlink(path, old / path.name)
    for path in (real / "comfy").iterdir():
        if path.name not in ("ops.py", "__pycache__"):
            os.symlink(path, old / "comfy" / path.name)
    source = (real / "comfy" / "ops.py").read_text(encoding="utf-8")
    (old / "comfy" / "ops.py").write_text(f"{source}\ndel scaled_dot_product_attention\n", encoding="utf-8")
    (old / "comfyui_version.py").write_text('__version__ = "0.26.0"\n', encoding="utf-8")
    monkeypatch.setenv("COMFYUI_PATH", str(old))


def test_it_is_refused_in_one_sentence_and_comfyui_starts(old_comfyui):
    with ComfyServer(cpu=True) as server, server.client() as client:
        nodes = client.object_info()
        log = server.log
    assert "KSampler" in nodes
    assert not [name for name in nodes if name.startswith("Paceline")]
    lines = [line for line in log.splitlines() if "Paceline:" in line]
    (line,) = lines
    assert "This ComfyUI (0.26.0) has no comfy.ops.scaled_dot_product_attention." in line
    assert "Paceline needs ComfyUI 0.27 or newer" in line
    assert "Traceback" not in log
