"""A server before its page is opened: past what ComfyUI shows to new users only, and without what a test has left."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comfy_host.server import ComfyServer


def pass_greetings(base_url: str, **further: object) -> None:
    """Tell a server, before its page is opened, that its user is not a new one, and ``further`` settings."""
    settings = {
        "Comfy.TutorialCompleted": True,
        "Comfy.InstalledVersion": "1.45.0",
        "Comfy.Locale": "en",
        "Comfy.Minimap.Visible": False,  # it would cover what the screenshots shall show
        **further,
    }
    body, headers = json.dumps(settings).encode(), {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{base_url}/settings", body, headers), timeout=60).close()


def begin_anew(server: ComfyServer, seconds: float = 120.0) -> None:
    """End what a server runs and what waits there, forget all settings of its user, and pass the greetings."""
    with server.client() as client:
        client.post("/queue", {"clear": True})
        deadline = time.monotonic() + seconds
        while client.get("/queue")["queue_running"] and time.monotonic() < deadline:
            client.interrupt()
            time.sleep(0.2)
    (server.base_directory / "user" / "default" / "comfy.settings.json").unlink(missing_ok=True)
    pass_greetings(server.base_url)
