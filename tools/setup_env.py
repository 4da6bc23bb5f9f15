"""Set up everything the demo, the tests and the benchmarks need: an environment, torch, ComfyUI, the tools.

Run by ``make setup`` with any Python from 3.10 on; only the standard library is used. Each stage leaves a stamp when
it has succeeded, so a second call does nothing. A stage that was interrupted installs all of its packages anew: pip
takes a package that it was interrupted in for a whole one.

Environment variables: COMFYUI_PATH uses an existing ComfyUI instead of fetching one, COMFYUI_VERSION picks another
version to fetch, PACELINE_VENV and PACELINE_CACHE move the environment and the cache. PACELINE_NEWEST=1 installs the
newest torch and ComfyUI frontend, and looks for newer ones once a day. BROWSER=1 installs Debian's Chromium for the
tests of the page, where there is no browser.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from types import FrameType

OLDEST_PYTHON = (3, 10)
if sys.version_info < OLDEST_PYTHON:  # before the imports below, which need it
    found, oldest = (".".join(map(str, version)) for version in (sys.version_info[:2], OLDEST_PYTHON))
    sys.exit(f"This is Python {found}, and {oldest} or newer is needed. Try: make setup PYTHON=python3.12")

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("tests", "tests/browser")]
from chrome import find_browser  # noqa: E402
from comfy_host.paths import (  # noqa: E402
    DEFAULT_COMFYUI_VERSION,
    ROOT,
    HostMissing,
    cache_dir,
    host_dir,
    is_comfyui,
    venv_dir,
)
from fetch_host import SetupFailed, fetch  # noqa: E402

CPU_TORCH, CPU_TORCHVISION = "torch==2.13.0", "torchvision==0.28.0"
TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")
FRONTEND = "comfyui-frontend-package"
STAGES = 5
NEWEST = bool(os.environ.get("PACELINE_NEWEST"))

# Runs in the environment without our stand-ins. Exit status 0: both packages work as they are.
PROBE_REAL = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != 'StandInFinder']"
PROBE_REAL += "; import torchvision, torchaudio"


class Environment:
    """The virtual environment, its pip, and the stamps of what is in it."""

    def __init__(self, folder: Path, cache: Path, lock: int | None) -> None:
        self.folder, self.cache = folder, cache
        self.stamps = folder / ".paceline"
        self.python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self._lock = lock
        self._anew: tuple[str, ...] = ()

    def run(self, command: Sequence[str | Path], what: str, log_name: str = "setup.log") -> None:
        """Run a command, its output to a log; on failure show the end of it."""
        # The lock is handed down: if we are killed, the next call waits for an orphaned pip.
        keep = [] if self._lock is None else [self._lock]
        path = self.cache / log_name
        with path.open("w", encoding="utf-8") as log:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment(), pass_fds=keep
            )
        if done.returncode != 0:
            tail = [f"    {line}" for line in path.read_text(errors="replace").splitlines() if line.strip()][-12:]
            raise SetupFailed("\n".join((f"{what} failed.", *tail, "The same command continues where it stopped.")))

    def works(self, *arguments: str) -> bool:
        """Say whether the environment's Python runs with these arguments."""
        try:
            done = subprocess.run([self.python, *arguments], capture_output=True, env=clean_environment())
        except OSError:
            return False
        return done.returncode == 0

    def pip(self, what: str, *arguments: str | Path) -> None:
        """Run pip; ``what`` starts the message if it fails."""
        command, *rest = arguments
        # A fifth of its twenty thousand files is ever imported: Python compiles those then, in less time than pip all.
        more = (*self._anew, "--no-compile") if command == "install" else ()
        self.run([self.python, "-m", "pip", "--disable-pip-version-check", "--no-input", command, *more, *rest], what)

    @property
    def packages(self) -> Path:
        """The environment's site-packages."""
        found = sorted(self.folder.glob("lib/python3*/site-packages")) or [self.folder / "Lib/site-packages"]
        return found[0]

    def stage(self, name: str, fingerprint: Sequence[str], install: Callable[[], None]) -> bool:
        """Run ``install`` unless it has succeeded for the same ``fingerprint`` before; return whether it ran."""
        parts = [*map(str, fingerprint), *([str(date.today())] if NEWEST else [])]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        stamp, running = self.stamps / f"{name}.json", self.stamps / "running"
        try:
            if json.loads(stamp.read_text())["fingerprint"] == digest:
                return False
        except (OSError, ValueError, KeyError, TypeError):
            pass
        self.stamps.mkdir(exist_ok=True)
        upgrade = ("--upgrade",) if NEWEST else ()
        self._anew = ("--ignore-installed",) if running.exists() else upgrade
        running.write_text(name)
        install()
        stamp.write_text(json.dumps({"fingerprint": digest}))
        running.unlink()
        return True


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would lead Python or pip elsewhere."""
    drop = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_CONSTRAINT", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    return kept | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}


def say(stage: int, text: str) -> None:
    print(f"[{stage}/{STAGES}] {text}", flush=True)


def has_nvidia_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia/version").exists()


def set_up_environment(environment: Environment) -> None:
    folder, creating = environment.folder, environment.cache / "creating-venv"
    if not creating.exists() and (
        environment.works("-c", "import pip")
        # A tool other than venv made it, without pip: keep what is in it.
        or (environment.works("-c", "") and environment.works("-m", "ensurepip"))
    ):
        say(1, f"environment: {folder} is ready")
        return
    say(1, f"environment: {'repairing' if folder.exists() else 'creating'} {folder}")
    ours = creating.exists() or environment.stamps.exists() or (folder / "pyvenv.cfg").exists()
    if folder.exists() and not ours and any(folder.iterdir()):
        raise SetupFailed(
            f"{folder} exists and is not a virtual environment.\nMove it away, or set PACELINE_VENV to another folder."
        )
    creating.write_text(str(folder))
    environment.run([sys.executable, "-m", "venv", "--clear", folder], "Creating the virtual environment")
    if not environment.works("-c", "import pip"):
        raise SetupFailed("The new virtual environment has no pip. Install Python's venv module (python3-venv).")
    creating.unlink()


def set_up_torch(environment: Environment) -> None:
    gpu = has_nvidia_gpu()
    standins = (ROOT / "tests" / "comfy_host" / "standins.py").read_text(encoding="utf-8")
    wanted = list(TORCH_PACKAGES) if gpu else [CPU_TORCH, CPU_TORCHVISION, "torchaudio"]
    name = "torch with CUDA" if gpu else f"{CPU_TORCH}, no GPU found"
    if NEWEST:  # torchaudio's releases lag behind torch's, and have a stand-in
        wanted, name = ["torch", "torchvision"], "the newest torch"

    def install() -> None:
        say(2, f"{name}: installing, the largest download")
        if gpu or NEWEST:
            environment.pip("Installing torch", "install", *wanted)
        else:
            environment.pip("Installing torch", "install", CPU_TORCH)
            # Their builds name a torch build of their own. What does not load gets a stand-in, see standins.py.
            environment.pip("Installing torchvision", "install", "--no-deps", *wanted[1:])
        if not environment.works("-c", "import torch"):
            raise SetupFailed(f"torch cannot be imported. Try: {environment.python} -c 'import torch'")
        copy, hook = environment.packages / "_paceline_standins.py", environment.packages / "paceline_standins.pth"
        if environment.works("-c", PROBE_REAL):
            hook.unlink(missing_ok=True)
            copy.unlink(missing_ok=True)
        else:
            copy.write_text(standins, encoding="utf-8")
            hook.write_text("import _paceline_standins; _paceline_standins.install()\n", encoding="utf-8")

    if not environment.stage("torch", [str(wanted), standins], install):
        say(2, f"{name}: ready")


def constraints(environment: Environment) -> Path:
    """Return a file that keeps pip from replacing the installed torch and its companions."""
    found = (path.name.removesuffix(".dist-info") for path in environment.packages.glob("*.dist-info"))
    pins = [name.replace("-", "==") for name in found if name.split("-")[0] in TORCH_PACKAGES]
    path = environment.cache / "constraints.txt"
    path.write_text("\n".join(pins) + "\n", encoding="utf-8")
    return path


def set_up_host(environment: Environment) -> None:
    version = os.environ.get("COMFYUI_VERSION") or DEFAULT_COMFYUI_VERSION
    name = f"ComfyUI {version}"
    if os.environ.get("COMFYUI_PATH"):
        host = host_dir()
        name = f"ComfyUI in {host}"
    elif not is_comfyui(host := environment.cache / "ComfyUI" / version):
        say(3, f"host: fetching {name}")
        fetch(version, host, lambda *arguments: environment.pip(f"Fetching {name}", *arguments))
    lines = (host / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if package_name(line) not in ("", *TORCH_PACKAGES)]
    if NEWEST:
        wanted = [FRONTEND if package_name(line) == FRONTEND else line for line in wanted]

    def install() -> None:
        say(3, f"host: {name}, installing its requirements")
        path = environment.cache / "host-requirements.txt"
        path.write_text("\n".join(wanted) + "\n", encoding="utf-8")
        environment.pip("Installing ComfyUI's requirements", "install", "-r", path, "-c", constraints(environment))

    if not environment.stage("host", [str(wanted)], install):
        say(3, f"host: {name} is ready")


def package_name(requirement: str) -> str:
    """Return the normalised package name of a line of a requirements file, or ""."""
    name = requirement.split("#")[0].strip()
    for separator in "<>=!~[; @":
        name = name.split(separator)[0]
    return name.strip().lower().replace("_", "-")


def set_up_tools(environment: Environment) -> None:
    requirements = ROOT / "tests" / "requirements.txt"

    def install() -> None:
        say(4, "tools: installing what the tests and linters need")
        environment.pip("Installing the tools", "install", "-r", requirements, "-c", constraints(environment))

    if not environment.stage("tools", [requirements.read_text(encoding="utf-8")], install):
        say(4, "tools: ready")


def set_up_browser(environment: Environment) -> None:
    if (found := find_browser()) is not None:
        say(5, f"browser: {found[0]} is ready")
        return
    if not os.environ.get("BROWSER"):
        say(5, "browser: none, so tests of the page are skipped. `make setup BROWSER=1` installs one")
        return
    root = [] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["sudo", "-n"]
    if shutil.which("apt-get") is None:
        raise SetupFailed("Only Debian's and Ubuntu's Chromium can be installed here. Set CHROME and CHROMEDRIVER.")
    say(5, "browser: installing Debian's chromium and chromium-driver")
    quiet = ["-qq", "--no-install-recommends", "chromium", "chromium-driver"]
    environment.run([*root, "apt-get", "update", "-qq"], "Reading Debian's list of packages", "browser.log")
    environment.run([*root, "apt-get", "install", "-y", *quiet], "Installing Chromium", "browser.log")


def take_lock(cache: Path) -> int | None:
    """Wait until no other set-up runs, and return the lock's file descriptor."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    descriptor = os.open(cache / "setup.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def interrupt(number: int, frame: FrameType | None) -> None:
    """Treat a polite request to end like Ctrl-C."""
    raise KeyboardInterrupt


def main() -> int:
    """Run all stages and return the process's exit status."""
    signal.signal(signal.SIGTERM, interrupt)
    cache = cache_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        environment = Environment(venv_dir(), cache, take_lock(cache))
        with ThreadPoolExecutor() as beside:
            browser = beside.submit(set_up_browser, environment)  # beside pip, which is on one core
            for stage in (set_up_environment, set_up_torch, set_up_host, set_up_tools):
                stage(environment)
            browser.result()
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again: it continues where it stopped.")
        return 130
    except (SetupFailed, HostMissing, OSError) as failed:
        print(f"\nThe set-up stopped: {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
