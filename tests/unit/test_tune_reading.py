"""Titles that ``tune`` prints, and the server that it asks."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from comfy_host.paths import ROOT
from paceline.optimizers.core.errors import InvalidSetting
from paceline.service.faster.tune import Server

PROMPT = {"4": {"class_type": "KSampler", "inputs": {"steps": 20}, "_meta": {"title": "KSampler"}}}


def test_a_title_is_one_line_without_commands_for_a_terminal():
    from paceline.service.faster.workflow import Workflow

    def titled(about):
        return Workflow({"1": {"class_type": "KSampler", "inputs": {}, "_meta": about}}).title("1")

    assert titled({"title": "\x1b]0;owned\x07\x1b[2J my\r\nnode \ud800\u202e"}) == "]0;owned[2J mynode "
    assert titled({"title": "n" * 1000}) == "n" * 100
    assert [titled(about) for about in ("x", None, [], {}, {"title": ""})] == ["KSampler"] * 5


def test_a_run_that_is_stopped_goes_on_nowhere(monkeypatch):
    """Ctrl-C while it waits: the prompt is taken out of the server's queue, or stopped, and no other."""
    asked = []

    class Running(BaseHTTPRequestHandler):
        def answer(self, content):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def do_GET(self):
            self.answer({"queue_running": [[0, "mine"]], "queue_pending": []} if self.path == "/queue" else {})

        def do_POST(self):
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.answer({"prompt_id": "mine"})

        def log_message(self, *text):
            """Say nothing."""

    def stop(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.service.faster.tune.time.sleep", stop)
    with HTTPServer(("127.0.0.1", 0), Running) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            Server(f"http://127.0.0.1:{server.server_port}").run(PROMPT)
        server.shutdown()
    assert asked[1:] == [("/queue", {"delete": ["mine"]}), ("/interrupt", {"prompt_id": "mine"})]


@pytest.mark.parametrize("address", ["http://127.0.0.1:99999", "http://[", "https://127.0.0.1:8188", "127.0.0.1:8188"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(InvalidSetting, match="is no address of a ComfyUI server"):
        Server(address)


def test_another_python_than_that_of_comfyui_is_told_so():
    """Without site-packages, as the system's own Python has no torch."""
    done = subprocess.run([sys.executable, "-S", str(ROOT), "tune", "workflow.json"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"tune needs the Python that runs ComfyUI: {sys.executable} has no ")
