"""A real ComfyUI server of our own: temporary folders, a free port, and nothing left behind."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from .client import ComfyClient
from .paths import ROOT, host_dir
from .processes import die_with_parent, end_group, free_port, temporary_folder

_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_START_SECONDS = 300.0


class ServerFailed(RuntimeError):
    """The server did not start; the message ends with the tail of its log."""


def has_gpu() -> bool:
    """Say whether torch sees a CUDA device."""
    import torch

    return torch.cuda.is_available()


class ComfyServer:
    """A running ComfyUI server, used as a context manager.

    It has its own temporary base folder (models, custom_nodes, input, output, temp, user, database), loads this
    pack and the packs in ``custom_nodes``, and is stopped when the block ends, also after an exception or Ctrl-C,
    and on Linux even if this process is killed. Start it in a thread that lives as long as the server should.

    Args:
        custom_nodes: folders of further node packs to load, for example ``ROOT / "tools" / "demo" / "icon_nodes"``.
        models: files or folders to offer, by ComfyUI's folder name: ``{"checkpoints": [path, ...]}``. A folder's
            files are offered one by one.
        arguments: further command line arguments for ComfyUI.
        cpu: True for the CPU, False for the GPU, None for the GPU if there is one.
        load_pack: whether to load this repository as a node pack.
        environment: further environment variables.
        base_directory: use and keep this folder instead of a temporary one.
    """

    def __init__(
        self,
        custom_nodes: Iterable[str | Path] = (),
        models: Mapping[str, Iterable[str | Path]] | None = None,
        arguments: Iterable[str] = (),
        cpu: bool | None = None,
        load_pack: bool = True,
        environment: Mapping[str, str] | None = None,
        base_directory: str | Path | None = None,
    ) -> None:
        self._packs = ([ROOT] if load_pack else []) + [Path(folder).resolve() for folder in custom_nodes]
        self._models = {kind: [Path(path) for path in paths] for kind, paths in (models or {}).items()}
        self._arguments = list(arguments)
        self._cpu = cpu
        self._environment = dict(environment or {})
        self._keep_base = base_directory is not None
        self._base = Path(base_directory).resolve() if base_directory is not None else None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_text = ""
        self.port = 0

    def start(self) -> ComfyServer:
        """Start the server and wait until it answers.

        Raises:
            ServerFailed: if it ends or does not answer in time.
        """
        if self._process is not None:
            raise RuntimeError("This server is already running.")
        host = host_dir()
        atexit.register(self.stop)
        try:
            self._prepare_folders()
            for attempt in range(3):
                self.port = free_port()
                self._launch(host)
                if self._wait_until_ready(last_attempt=attempt == 2):
                    return self
        except BaseException:
            self.stop()
            raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def stop(self) -> None:
        """Stop the server and everything it started, and delete its folders. Does nothing if it is not running."""
        process, self._process = self._process, None
        if process is not None:
            end_group(process)
        if self._base is not None and not self._keep_base:
            self._log_text = self.log
            shutil.rmtree(self._base, ignore_errors=True)
            self._base = None
        atexit.unregister(self.stop)

    def __enter__(self) -> ComfyServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """The server's address, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_directory(self) -> Path:
        """The folder that holds models, custom_nodes, input, output, temp and user."""
        if self._base is None:
            raise RuntimeError("The server is not running.")
        return self._base

    @property
    def output_dir(self) -> Path:
        """Where SaveImage writes."""
        return self.base_directory / "output"

    @property
    def input_dir(self) -> Path:
        """Where LoadImage reads."""
        return self.base_directory / "input"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise RuntimeError("The server is not running.")
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything the server has printed so far; stays readable after it has stopped."""
        if self._base is None:
            return self._log_text
        with contextlib.suppress(OSError):
            text = (self._base / "server.log").read_text(encoding="utf-8", errors="replace")
            return _COLOUR.sub("", text)
        return self._log_text

    @property
    def failed_imports(self) -> list[str]:
        """Names of the node packs and of ComfyUI's own node files that could not be imported."""
        return re.findall(r"Cannot import (\S+) module", self.log) + re.findall(
            r"Error while calling comfy_entrypoint in (\S+):", self.log
        )

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.splitlines()[-lines:])

    def client(self) -> ComfyClient:
        """Return a client that shows this server's log when a prompt fails."""
        return ComfyClient(self.base_url, log_tail=self.log_tail)

    def add_model(self, kind: str, path: str | Path, name: str | None = None) -> None:
        """Offer one more model file, also while the server runs (ComfyUI lists folders anew when asked)."""
        folder = self.base_directory / "models" / kind
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / (name or Path(path).name)
        if not link.exists():
            link.symlink_to(Path(path).resolve())

    def _prepare_folders(self) -> None:
        if self._base is None:
            self._base = temporary_folder()
        for name in ("models", "custom_nodes", "input", "output", "temp", "user"):
            (self._base / name).mkdir(parents=True, exist_ok=True)
        for pack in self._packs:
            if not pack.is_dir():
                raise FileNotFoundError(f"The node pack {pack} does not exist.")
            link = self._base / "custom_nodes" / ("paceline" if pack == ROOT else pack.name)
            if not link.exists():
                link.symlink_to(pack, target_is_directory=True)
        for kind, paths in self._models.items():
            (self._base / "models" / kind).mkdir(exist_ok=True)
            for path in paths:
                for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                    self.add_model(kind, file)

    def _launch(self, host: Path) -> None:
        base = self.base_directory
        command = [sys.executable, str(host / "main.py"), "--listen", "127.0.0.1", "--port", str(self.port)]
        command += ["--base-directory", str(base)]
        command += ["--database-url", f"sqlite:///{base / 'user' / 'comfyui.db'}"]
        command += ["--disable-api-nodes", "--disable-auto-launch"]
        if self._cpu if self._cpu is not None else not has_gpu():
            command += ["--cpu", "--use-pytorch-cross-attention"]
        ours = {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
        environment = {**os.environ, **ours, **self._environment}
        environment.pop("PYTHONPATH", None)  # only the pack's own loader may find the pack
        with (base / "server.log").open("wb") as log:
            in_main_thread = threading.current_thread() is threading.main_thread()
            self._process = subprocess.Popen(
                [*command, *self._arguments],
                cwd=base,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its own process group, so that all of it can be stopped
                # The signal is tied to the starting *thread*, so only the main thread may ask for it.
                preexec_fn=die_with_parent if sys.platform == "linux" and in_main_thread else None,
            )

    def _wait_until_ready(self, last_attempt: bool) -> bool:
        """Return True once the server answers, False if its port was taken and another attempt makes sense."""
        process = self._process
        assert process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self._process = None
                end_group(process)
                if "address already in use" in self.log.lower() and not last_attempt:
                    return False
                raise ServerFailed(f"ComfyUI ended with status {process.returncode} while starting.\n{self.log_tail()}")
            with contextlib.suppress(urllib.error.URLError, OSError, ValueError):
                self.client().get("/system_stats", timeout=30)
                return True
            time.sleep(0.2)
        raise ServerFailed(f"ComfyUI did not answer in {_START_SECONDS:g} s.\n{self.log_tail()}")
