"""What stands for ComfyUI's server in this process: it keeps what would go to the page."""

from __future__ import annotations

import json
from typing import Any


class PageServer:
    """Keeps events with their payloads, and the page that each is for."""

    def __init__(self) -> None:
        self.client_id: str | None = "a page"
        self.last_prompt_id = "a prompt"
        self.sent: list[tuple[str, dict[str, Any], str | None]] = []

    def send_sync(self, event: str, payload: dict[str, Any], client: str | None) -> None:
        json.dumps(payload, allow_nan=False)
        self.sent.append((event, payload, client))
