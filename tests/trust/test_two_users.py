"""Two people on one server with ``--multi-user``: what one tries and is told of is not the other's."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from comfy_host.client import without_proxy
from comfy_host.server import ComfyServer
from faster_prompts import plain

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


class User:
    """Somebody with an account and a page of their own."""

    def __init__(self, server: ComfyServer, name: str) -> None:
        self.server, self.client = server, server.client()
        self.id = self.ask("/users", {"username": name}, "")

    def ask(self, path: str, sent: Any = None, user: str | None = None) -> Any:
        """Return the answer to a request as the page sends it, with the user's id."""
        body = None if sent is None else json.dumps(sent).encode()
        headers = {"Content-Type": "application/json", "comfy-user": self.id if user is None else user}
        with without_proxy.open(urllib.request.Request(self.server.base_url + path, body, headers)) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def faster(self, **sent: Any) -> Any:
        return self.ask("/paceline/faster", sent)

    def watched(self, checkpoint: Path, text: str) -> Any:
        """Begin to make a workflow faster."""
        return self.faster(do="run", prompt=plain(checkpoint, text, steps=2), choice="fast")


@pytest.fixture(scope="module")
def users(sd15_checkpoint):
    with ComfyServer(arguments=["--multi-user"], models={"checkpoints": [sd15_checkpoint]}, cpu=True) as server:
        both = User(server, "ada"), User(server, "ben")
        yield both
        for user in both:
            user.client.close()


def test_each_is_told_of_their_own_run_and_the_last_one_is_watched(users, sd15_checkpoint):
    ada, ben = users
    hers, his = ada.watched(sd15_checkpoint, "a fox"), ben.watched(sd15_checkpoint, "a boat")
    texts = [[node["inputs"].get("text") for node in one["prompt"].values()] for one in (hers, his)]
    assert "a fox" in texts[0] and "a boat" not in texts[0] and "a boat" in texts[1]
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(user.client.run, one["prompt"]) for user, one in zip(users, (hers, his), strict=True)]
        assert all(one.result().outputs["7"]["images"] for one in running)
    assert ben.faster(do="next", job=his["job"])["phase"] == "probe"
    with pytest.raises(urllib.error.HTTPError, match="400"):  # she is told to run it once more
        ada.faster(do="next", job=hers["job"])
