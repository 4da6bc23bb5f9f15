"""Collect the messages of ComfyUI's websocket in a thread."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_CONNECT_SECONDS = 120.0  # a server that compiles or loads answers late


@dataclass(frozen=True)
class Event:
    """One message from the server: when it arrived (``time.perf_counter()``), its type and its data."""

    seconds: float
    type: str
    data: Any


class Listener:
    """Collects websocket messages in a thread, from the moment it is made.

    Raises:
        ConnectionError: if the server cannot be reached.
    """

    def __init__(self, base_url: str, client_id: str) -> None:
        self.events: list[Event] = []
        self.alive = True
        self._changed = threading.Condition()
        self._connected = threading.Event()
        self._problem: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        url = f"{base_url}/ws?clientId={client_id}"
        self._thread = threading.Thread(target=self._run, args=(url,), daemon=True, name="comfy-client")
        self._thread.start()
        if not self._connected.wait(_CONNECT_SECONDS) or self._problem is not None:
            raise ConnectionError(f"No websocket connection to {base_url}: {self._problem}")

    def wait_for(self, found: Callable[[Event], bool], first: int, timeout: float) -> bool:
        """Wait for a message from index ``first`` on; False after ``timeout`` or when the connection broke."""
        deadline = time.monotonic() + timeout
        position = first
        with self._changed:
            while True:
                while position < len(self.events):
                    if found(self.events[position]):
                        return True
                    position += 1
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not self.alive:
                    return False
                self._changed.wait(remaining)

    def close(self) -> None:
        """End the thread and its connection."""
        if self.alive:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10)

    def _run(self, url: str) -> None:
        self._task = self._loop.create_task(self._listen(url))
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except Exception as problem:  # noqa: BLE001 (handed to the thread that waits)
            self._problem = problem
        finally:
            self._loop.close()
            with self._changed:
                self.alive = False
                self._changed.notify_all()
            self._connected.set()

    async def _listen(self, url: str) -> None:
        import aiohttp

        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, max_msg_size=0, heartbeat=None) as socket,
        ):
            self._connected.set()
            async for message in socket:
                now = time.perf_counter()
                if message.type == aiohttp.WSMsgType.TEXT:
                    content = json.loads(message.data)
                    self._add(Event(now, content["type"], content.get("data")))

    def _add(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()
