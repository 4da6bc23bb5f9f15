"""Set up everything the demo, the tests and the benchmarks need: an environment, torch, ComfyUI, the tools.

Run by ``make setup`` with any Python from 3.10 on; only the standard library is used. Each stage leaves a stamp when
it has succeeded, so a second call does nothing, and whatever an interrupted call left behind is repaired.

Environment variables: COMFYUI_PATH uses an existing ComfyUI instead of fetching one, COMFYUI_VERSION picks another
version to fetch, PACELINE_VENV and PACELINE_CACHE move the environment and the cache.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType

OLDEST_PYTHON = (3, 10)
if sys.version_info < OLDEST_PYTHON:  # before the imports below, which need it
    found, oldest = (".".join(map(str, version)) for version in (sys.version_info[:2], OLDEST_PYTHON))
    sys.exit(f"This is Python {found}, and {oldest} or newer is needed. Try: make setup PYTHON=python3.12")

from comfy_host.paths import DEFAULT_COMFYUI_VERSION, ROOT, HostMissing, cache_dir, host_dir, venv_dir  # noqa: E402
from set_up.environment import Environment, fingerprint_of, write_atomically  # noqa: E402
from set_up.failures import SetupFailed, remedy_for  # noqa: E402
from set_up.fetch_host import fetch, intact  # noqa: E402

CPU_TORCH, CPU_TORCHVISION = "torch==2.13.0", "torchvision==0.28.0"
FREE_BYTES = {"cpu": 4 << 30, "gpu": 14 << 30}
TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")
STAGES = 4

# Runs in the environment without our stand-ins. Exit status 0: both packages work as they are.
PROBE_REAL = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != 'StandInFinder']"
PROBE_REAL += "; import torchvision, torchaudio"


def say(stage: int, text: str) -> None:
    print(f"[{stage}/{STAGES}] {text}", flush=True)


def has_nvidia_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia/version").exists()


def set_up_environment(environment: Environment) -> None:
    creating = environment.cache / "creating-venv"
    if not creating.exists() and (
        environment.works("-c", "import pip")
        # A tool other than venv made it, without pip: keep what is in it.
        or (environment.works("-c", "") and environment.works("-m", "ensurepip"))
    ):
        say(1, f"environment: {environment.folder} is ready")
        return
    found = environment.folder.exists()
    say(1, f"environment: {'repairing' if found else 'creating'} {environment.folder}")
    ours = creating.exists() or environment.stamps.exists() or (environment.folder / "pyvenv.cfg").exists()
    if found and not ours and any(environment.folder.iterdir()):
        raise SetupFailed(
            f"{environment.folder} exists and is not a virtual environment.",
            "Move it away, or set PACELINE_VENV to another folder.",
        )
    creating.write_text(str(environment.folder))
    environment.run([sys.executable, "-m", "venv", "--clear", environment.folder], "Creating the virtual environment")
    if not environment.works("-c", "import pip"):
        raise SetupFailed("The new virtual environment has no pip.", "Install Python's venv module (python3-venv).")
    creating.unlink()


def set_up_torch(environment: Environment) -> None:
    gpu = has_nvidia_gpu()
    standins = ROOT / "tools" / "comfy_host" / "standins.py"
    wanted = list(TORCH_PACKAGES) if gpu else [CPU_TORCH, CPU_TORCHVISION, "torchaudio"]
    fingerprint = fingerprint_of(wanted, standins.read_text(encoding="utf-8"))
    name = "torch with CUDA" if gpu else f"{CPU_TORCH}, no GPU found"
    if environment.is_done("torch", fingerprint):
        say(2, f"{name}: ready")
        return
    if not any(entry.startswith("torch-") for entry in environment.installed()):
        need_space(environment.folder, FREE_BYTES["gpu" if gpu else "cpu"])
    say(2, f"{name}: installing, the largest download")
    environment.begin("torch")
    if gpu:
        environment.pip("Installing torch", "install", *wanted)
    else:
        environment.pip("Installing torch", "install", CPU_TORCH)
        # Their builds name a torch build of their own. What does not load gets a stand-in, see standins.py.
        environment.pip("Installing torchvision", "install", "--no-deps", *wanted[1:])
    if not environment.works("-c", "import torch"):
        raise SetupFailed("torch is installed but cannot be imported.", f"Try: {environment.python} -c 'import torch'")
    copy, hook = environment.packages / "_paceline_standins.py", environment.packages / "paceline_standins.pth"
    if environment.works("-c", PROBE_REAL):
        hook.unlink(missing_ok=True)
        copy.unlink(missing_ok=True)
    else:
        write_atomically(copy, standins.read_text(encoding="utf-8"))
        write_atomically(hook, "import _paceline_standins; _paceline_standins.install()\n")
    environment.finish("torch", fingerprint)


def constraints(environment: Environment) -> Path:
    """Return a file that keeps pip from replacing the installed torch and its companions."""
    code = (
        "import importlib.metadata as m\n"
        f"for p in {TORCH_PACKAGES}:\n"
        "    try: print(p + '==' + m.version(p))\n"
        "    except m.PackageNotFoundError: pass"
    )
    path = environment.cache / "constraints.txt"
    write_atomically(path, environment.output("-c", code) + "\n")
    return path


def set_up_host(environment: Environment) -> None:
    given = os.environ.get("COMFYUI_PATH")
    version = os.environ.get("COMFYUI_VERSION") or DEFAULT_COMFYUI_VERSION
    if given:
        host = host_dir()
        name = f"ComfyUI in {host}"
    else:
        host = environment.cache / "ComfyUI" / version
        name = f"ComfyUI {version}"
        if not intact(host):
            say(3, f"host: fetching {name}")
            fetch(version, host, lambda *arguments: environment.pip(f"Fetching {name}", *arguments))
    lines = (host / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if package_name(line) not in ("", *TORCH_PACKAGES)]
    fingerprint = fingerprint_of(wanted)
    if environment.is_done("host", fingerprint):
        say(3, f"host: {name} is ready")
        return
    say(3, f"host: {name}, installing its requirements")
    environment.begin("host")
    requirements = environment.cache / "host-requirements.txt"
    write_atomically(requirements, "\n".join(wanted) + "\n")
    environment.pip("Installing ComfyUI's requirements", "install", "-r", requirements, "-c", constraints(environment))
    environment.finish("host", fingerprint)


def package_name(requirement: str) -> str:
    """Return the normalised package name of a line of a requirements file, or ""."""
    name = requirement.split("#")[0].strip()
    for separator in "<>=!~[; @":
        name = name.split(separator)[0]
    return name.strip().lower().replace("_", "-")


def set_up_tools(environment: Environment) -> None:
    requirements = ROOT / "tests" / "requirements.txt"
    fingerprint = fingerprint_of(requirements.read_text(encoding="utf-8"))
    if environment.is_done("tools", fingerprint):
        say(4, "tools: ready")
        return
    say(4, "tools: installing what the tests and linters need")
    environment.begin("tools")
    environment.pip("Installing the tools", "install", "-r", requirements, "-c", constraints(environment))
    environment.finish("tools", fingerprint)


def need_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(next(parent for parent in (folder, *folder.parents) if parent.exists())).free
    if free < needed:
        raise SetupFailed(
            f"Only {free / 2**30:.1f} GiB are free where {folder} is; about {needed / 2**30:.0f} GiB are needed.",
            "Free some space, or set PACELINE_VENV and PACELINE_CACHE to folders on another disk.",
        )


def take_lock(cache: Path) -> int | None:
    """Wait until no other set-up runs, and return the lock's file descriptor."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    descriptor = os.open(cache / "setup.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Waiting for another set-up of this repository to end ...", flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def set_up() -> None:
    """Run all stages."""
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    lock = take_lock(cache)
    environment = Environment(venv_dir(), cache, lock)
    set_up_environment(environment)
    set_up_torch(environment)
    set_up_host(environment)
    set_up_tools(environment)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Treat a polite request to end like Ctrl-C."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the set-up and return the process's exit status."""
    signal.signal(signal.SIGTERM, interrupt)
    try:
        set_up()
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again: it repairs what is half done and continues.")
        return 130
    except (SetupFailed, HostMissing) as failed:
        print(f"\nThe set-up stopped: {failed}")
        return 1
    except OSError as failed:
        print(f"\nThe set-up stopped: {SetupFailed(str(failed), remedy_for(str(failed)))}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
