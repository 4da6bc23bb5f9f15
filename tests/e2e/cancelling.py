"""A user who cancels when a node says a certain thing."""

from __future__ import annotations

from comfy_host.client import ComfyClient
from comfy_host.listener import Event


class Cancel:
    """Told of each message of a run, it stops the run once, when one of our nodes says something that begins so."""

    def __init__(self, client: ComfyClient, headline: str) -> None:
        self.client, self.headline, self.done = client, headline, False

    def __call__(self, event: Event) -> None:
        """Look at a message."""
        said = event.data.get("headline", "") if event.type == "paceline.activity" else ""
        if said.startswith(self.headline) and not self.done:
            self.done = True
            self.client.interrupt()
