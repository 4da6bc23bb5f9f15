"""The pack's commands as a user types them, in a ComfyUI with folders of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from comfy_host.paths import ROOT, host_dir


def run(base: Path, checkpoint: Path, name: str, *ours: str) -> subprocess.CompletedProcess[str]:
    """Run the command ``name``; make the folders and put the checkpoint there if that is still to do."""
    folder = base / "custom_nodes" / "ComfyUI-Paceline"
    if not folder.exists():
        folder.parent.mkdir(parents=True)
        folder.symlink_to(ROOT)
        (base / "models" / "checkpoints").mkdir(parents=True)
        (base / "models" / "checkpoints" / checkpoint.name).symlink_to(checkpoint)
    about = ["--comfyui", str(host_dir())]
    if name != "tune":  # a workflow names its own
        about += ["--checkpoint", checkpoint.name]
    theirs = ["--", "--cpu", "--use-pytorch-cross-attention", "--base-directory", str(base)]
    command = [sys.executable, str(folder), name, *about, *ours, *theirs]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # the tests' import path
    return subprocess.run(command, capture_output=True, text=True, env=own)
