"""ComfyUI-Manager and comfy-cli in an environment of their own, which sees ComfyUI's packages as a user's does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from comfy_host.paths import ROOT, cache_dir, host_dir
from filelock import FileLock
from needs import missing

COMFY_CLI = "comfy-cli==1.23.0"


def environment() -> Path:
    """Return the folder with the tools' programs; it is made when it is not there. Skips the test without a network."""
    manager = (host_dir() / "manager_requirements.txt").read_text(encoding="utf-8").strip()
    folder = cache_dir() / "package-tools"
    wanted = f"{COMFY_CLI} {manager}"
    with FileLock(f"{folder}.lock"):  # the tests that use it run in several processes
        if not _is(folder, wanted):
            _install(folder, wanted)
    return folder / "bin"


def _is(folder: Path, wanted: str) -> bool:
    stamp = folder / "installed"
    return stamp.exists() and stamp.read_text() == wanted


def _install(folder: Path, wanted: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "host.pth").write_text(
        f"{sysconfig.get_paths()['purelib']}\n"
    )  # first: what is there is not downloaded
    command = [folder / "bin" / "pip", "install", "-q", "--no-compile", "--disable-pip-version-check"]
    done = subprocess.run([*command, *wanted.split()], capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        missing(f"{wanted} cannot be installed: {done.stderr[-500:]}")
    (folder / "installed").write_text(wanted)


def run(program: Path, *arguments: str | Path, folder: Path, **variables: str) -> str:
    """Run a tool and return what it printed; fail with that if it fails."""
    quiet = {"DO_NOT_TRACK": "1", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "NO_COLOR": "1", "COLUMNS": "200"}
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "COMFYUI_PATH")}
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=kept | quiet | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def git(folder: Path, *arguments: str | Path) -> str:
    """Run git in a folder, as nobody in particular."""
    settings = ("user.name=test", "user.email=test@example.org", "init.defaultBranch=main", "commit.gpgsign=false")
    who = [part for setting in settings for part in ("-c", setting)]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def copy_of_the_pack(folder: Path) -> Path:
    """Copy the working tree into ``folder``, as a git repository with one commit."""
    folder.mkdir(exist_ok=True)
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():  # not deleted since
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "as it is")
    return folder
