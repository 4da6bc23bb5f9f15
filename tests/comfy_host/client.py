"""A synchronous client for ComfyUI's HTTP and websocket interface."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from .listener import Event, Listener

Prompt = dict[str, dict[str, Any]]


@dataclass(eq=False)
class PromptFailed(RuntimeError):
    """A prompt was refused or a node failed.

    Attributes:
        message: what ComfyUI's dialog shows.
        node_id: id of the node, or None; likewise its class, ``node_type``.
        exception_type: Python class of the exception, or the kind of validation error.
        traceback: the node's traceback, or "".
    """

    message: str
    node_id: str | None = None
    node_type: str | None = None
    exception_type: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Result:
    """What a finished prompt gave.

    Attributes:
        prompt_id: ComfyUI's id of the run.
        outputs: what each output node showed, by node id, as in ComfyUI's history.
        images: the images of each node, downloaded.
        texts: the texts of each node.
        events: every message that arrived while it ran.
        seconds: from queueing to the end, as seen from here.
    """

    prompt_id: str
    outputs: dict[str, dict[str, Any]]
    images: dict[str, list[Image.Image]]
    texts: dict[str, list[str]]
    events: list[Event] = field(repr=False)
    seconds: float

    def image(self) -> Image.Image:
        """Return the only image, or the first of the last node."""
        if not self.images:
            raise LookupError("The prompt gave no image.")
        return list(self.images.values())[-1][0]

    def pixels(self) -> np.ndarray:
        """Return that image as int16 ``[height, width, 3]``, whose differences do not overflow."""
        return np.asarray(self.image().convert("RGB")).astype(np.int16)

    def of_type(self, event_type: str) -> list[Any]:
        """Return the data of every message of this type, for example of a node's own event."""
        return [event.data for event in self.events if event.type == event_type]


class ComfyClient:
    """Talks to one ComfyUI server.

    ``log_tail`` returns the end of the server's log, which is added to the notes of a failure.
    """

    def __init__(self, base_url: str, log_tail: Callable[[], str] | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.client_id = uuid.uuid4().hex
        self._log_tail = log_tail
        self._listener: Listener | None = None

    def get(self, path: str, timeout: float = 60.0) -> Any:
        """Return the JSON answer to a GET request."""
        return json.loads(self._request(path, None, timeout))

    def post(self, path: str, data: Any, timeout: float = 60.0) -> Any:
        """Return the JSON answer to a POST request, None for an empty answer."""
        answer = self._request(path, data, timeout)
        return json.loads(answer) if answer else None

    def object_info(self, node_type: str | None = None) -> dict[str, Any]:
        """Return the description of all node types, or of one."""
        return self.get(f"/object_info/{node_type}" if node_type else "/object_info", timeout=180.0)

    def free(self) -> None:
        """Ask the server to unload its models and forget its cached outputs."""
        self.post("/free", {"unload_models": True, "free_memory": True})

    def interrupt(self) -> None:
        """Stop the prompt that is running."""
        self.post("/interrupt", {})

    def queue(self, prompt: Prompt) -> str:
        """Queue a prompt in API format and return its id.

        Raises:
            PromptFailed: if ComfyUI's validation refuses it.
        """
        try:
            answer = self.post("/prompt", {"prompt": prompt, "client_id": self.client_id})
        except urllib.error.HTTPError as refused:
            raise self._noted(_refusal(json.loads(refused.read()))) from None
        return str(answer["prompt_id"])

    def run(self, prompt: Prompt, timeout: float = 600.0) -> Result:
        """Run a prompt in API format and return what it gave.

        Raises:
            PromptFailed: if it is refused, or a node fails, or it is interrupted.
            TimeoutError: if it takes longer; the prompt is interrupted.
        """
        if self._listener is None or not self._listener.alive:
            self._listener = Listener(self.base_url, self.client_id)
        first = len(self._listener.events)
        started = time.perf_counter()
        prompt_id = self.queue(prompt)

        def finished(event: Event) -> bool:
            # "executing nothing" comes after the history was written, also after an error.
            mine = isinstance(event.data, dict) and event.data.get("prompt_id") == prompt_id
            return mine and event.type == "executing" and event.data.get("node") is None

        if not self._listener.wait_for(finished, first, timeout):
            tail = f"\n{self._log_tail()}" if self._log_tail else ""
            if not self._listener.alive:
                raise ConnectionError(f"The connection to ComfyUI broke while a prompt ran.{tail}")
            self.interrupt()
            raise TimeoutError(f"The prompt was not done after {timeout:g} s.{tail}")
        seconds = time.perf_counter() - started
        events = self._listener.events[first:]
        for event in events:
            if event.type in ("execution_error", "execution_interrupted") and (
                event.data.get("prompt_id") == prompt_id
            ):
                raise self._noted(_failure(event))
        outputs = self.get(f"/history/{prompt_id}")[prompt_id]["outputs"]
        return Result(
            prompt_id=prompt_id,
            outputs=outputs,
            images={
                node: [self.image(**item) for item in shown["images"]]
                for node, shown in outputs.items()
                if shown.get("images") and not shown.get("animated", [False])[0]
            },
            texts={node: [str(t) for t in shown["text"]] for node, shown in outputs.items() if "text" in shown},
            events=events,
            seconds=seconds,
        )

    def image(self, filename: str, subfolder: str = "", type: str = "output", **_: object) -> Image.Image:
        """Download one image that a result names."""
        query = urllib.parse.urlencode({"filename": filename, "subfolder": subfolder, "type": type})
        image = Image.open(io.BytesIO(self._request(f"/view?{query}", None, 60.0)))
        image.load()
        return image

    def close(self) -> None:
        """Close the websocket. The client can be used again afterwards."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __enter__(self) -> ComfyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, path: str, data: Any, timeout: float) -> bytes:
        body = None if data is None else json.dumps(data).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(self.base_url + path, data=body, headers=headers)
        with without_proxy.open(request, timeout=timeout) as answer:
            return answer.read()

    def _noted(self, error: PromptFailed) -> PromptFailed:
        if hasattr(error, "add_note"):  # Python 3.11
            if error.traceback:
                error.add_note(error.traceback)
            if self._log_tail is not None:
                error.add_note(f"The server's log ends with:\n{self._log_tail()}")
        return error


without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens addresses of this machine: a proxy from the environment must not see these requests."""


def _refusal(answer: dict[str, Any]) -> PromptFailed:
    """Return the error for a prompt that ComfyUI's validation refused."""
    failed = [(node["errors"][0], id, node) for id, node in (answer.get("node_errors") or {}).items() if node["errors"]]
    error, node_id, node = failed[0] if failed else (answer["error"], None, {})
    if isinstance(error, str):
        return PromptFailed(error)
    message = ": ".join(part for part in (error["message"], error.get("details")) if part)
    node_id = node_id or (error.get("extra_info") or {}).get("node_id")
    return PromptFailed(message, node_id, node.get("class_type"), error["type"])


def _failure(event: Event) -> PromptFailed:
    data = event.data
    return PromptFailed(
        str(data.get("exception_message", "The prompt was interrupted.")).strip() or data.get("exception_type", ""),
        data.get("node_id"),
        data.get("node_type"),
        data.get("exception_type", event.type),
        "".join(data.get("traceback", [])),
    )
