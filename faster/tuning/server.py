"""A ComfyUI server: one that runs already, or one in this process."""

from __future__ import annotations

import http.client
import importlib
import json
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...core.errors import BackendUnavailable, InvalidSetting, PacelineError
from ...workbench.comfyui.standalone import start_comfyui
from ..node_types import failure_of

_SECONDS_TO_START = 120.0
_SECONDS_TO_ANSWER = 60.0
_SECONDS_BETWEEN_LOOKS = 0.3


class Server:
    """Asks the server at an address like ``http://127.0.0.1:8188``; `InvalidSetting` for any other form."""

    def __init__(self, address: str) -> None:
        wrong = InvalidSetting(f"{address} is no address of a ComfyUI server.", "One is http://127.0.0.1:8188.")
        try:
            parts = urlsplit(address)
            port = parts.port or 80
        except ValueError:  # a port or a bracket that cannot be
            raise wrong from None
        if parts.scheme != "http" or not parts.hostname:
            raise wrong
        self.address = address
        self._host, self._port, self._base = parts.hostname, port, parts.path.rstrip("/")

    def ask(self, route: str, sent: Any = None) -> Any:
        """Return the JSON answer of a route; what is sent is posted.

        Raises:
            BackendUnavailable: if nothing answers, no ComfyUI does, or it does not have our routes.
            InvalidSetting: in the server's own words, if it refuses what was sent.
        """
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_SECONDS_TO_ANSWER)
        try:
            body = None if sent is None else json.dumps(sent)
            headers = {"Content-Type": "application/json"}
            connection.request("GET" if sent is None else "POST", self._base + route, body, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last for a name that no host can have
            raise BackendUnavailable(
                f"No ComfyUI answers at {self.address} ({error}).", "Start it, or leave --server out."
            ) from None
        finally:
            connection.close()
        if response.status in (404, 405) and route.startswith("/paceline/"):
            raise BackendUnavailable(
                "This ComfyUI has no Paceline of this version.", "Install or update it in its custom_nodes."
            )
        try:
            answer = json.loads(text) if text else None
        except ValueError:
            raise BackendUnavailable(
                f"What answers at {self.address} is no ComfyUI, or it failed (status {response.status}).",
                "Look at its log, or name another --server.",
            ) from None
        if response.status >= 400:
            raise InvalidSetting(_refusal(answer))
        return answer

    def run(self, prompt: Any) -> str:
        """Run a prompt and return its id; `InvalidSetting` if it is refused or fails.

        Where Ctrl-C stops the waiting, the server stops the prompt too, and no other.
        """
        id: str = self.ask("/prompt", {"prompt": prompt})["prompt_id"]
        try:
            self._wait(id)
        except KeyboardInterrupt:
            with suppress(PacelineError):
                self.ask("/queue", {"delete": [id]})
                self.ask("/interrupt", {"prompt_id": id})
            raise
        return id

    def _wait(self, id: str) -> None:
        while True:
            # The queue first: a run that ends between the two looks is in the history by then.
            queue = self.ask("/queue")
            waiting = {entry[1] for entries in queue.values() for entry in entries}
            history = self.ask(f"/history/{id}")
            if id in history:
                messages = history[id].get("status", {}).get("messages", [])
                for name, about in messages:
                    if name in ("execution_error", "execution_interrupted"):
                        raise InvalidSetting(failure_of(about) or "The measurement was stopped.")
                return
            if id not in waiting:
                raise InvalidSetting("ComfyUI has lost the measurement.", "Look at its log, and start it again.")
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def start_server(folder: Path, arguments: Sequence[str]) -> Server:
    """Start ComfyUI's server in this process, on a port of its own; `BackendUnavailable` without an answer in time."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start_comfyui(folder, ["--listen", "127.0.0.1", "--port", str(port), "--disable-auto-launch", *arguments])
    loop, _, start = importlib.import_module("main").start_comfyui()
    threading.Thread(target=lambda: loop.run_until_complete(start()), daemon=True, name="ComfyUI").start()
    server = Server(f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + _SECONDS_TO_START
    while True:
        try:
            server.ask("/queue")
            return server
        except BackendUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _refusal(answer: Any) -> str:
    answer = answer if isinstance(answer, dict) else {}
    for node in (answer.get("node_errors") or {}).values():
        for error in node["errors"]:
            return f"{node.get('class_type')}: {error['message']}: {error.get('details')}"
    error = answer.get("error", "The server refuses it and does not say why.")
    return str(error.get("message") if isinstance(error, dict) else error)
