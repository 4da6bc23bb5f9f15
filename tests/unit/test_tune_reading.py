"""The file that ``tune`` is given: a workflow in the API format, or a picture with one in it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from comfy_host.paths import ROOT
from paceline.core.errors import InvalidSetting
from paceline.faster.tuning.reading import read_workflow
from paceline.faster.tuning.server import Server
from PIL import Image
from PIL.PngImagePlugin import PngInfo

PROMPT = {"4": {"class_type": "KSampler", "inputs": {"steps": 20}, "_meta": {"title": "KSampler"}}}


def picture(path, **texts):
    chunks = PngInfo()
    for name, text in texts.items():
        chunks.add_text(name, text)
    Image.new("RGB", (8, 8)).save(path, pnginfo=chunks)
    return path


def test_a_picture_is_as_good_as_its_workflow(tmp_path):
    """What ComfyUI has noted of its run stays behind: it would take it for the state of the next one."""
    noted = {"4": {**PROMPT["4"], "is_changed": [float("nan")]}}
    file = tmp_path / "fox.json"
    file.write_text(json.dumps(PROMPT))
    saved = picture(tmp_path / "fox.png", prompt=json.dumps(noted), workflow="{}")
    assert read_workflow(saved) == read_workflow(file) == PROMPT


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"nodes": [], "links": []}', r"ComfyUI's Save writes.*choose File > Export \(API\), or name a PNG"),
        (b'{"4": {"inputs": {}}}', r"no workflow in the API format\. Save it in ComfyUI with File > Export \(API\)"),
        (b"[" * 100_000, r"is not JSON.*Export \(API\)"),
        (b'{"4": {"class_type": "A", "inputs": {"seed": ' + b"9" * 5000 + b"}}}", r"is not JSON: Exceeds the limit"),
        (rb'{"4": {"class_type": "A", "inputs": {"text": "\ud800"}}}', r"surrogates not allowed.*Export \(API\)"),
        (b"\xff\xfe", r"neither UTF-8 text nor a whole PNG"),
        (b"\x89PNG\r\n\x1a\nnothing", r"neither UTF-8 text nor a whole PNG"),
    ],
)
def test_what_is_no_workflow_is_refused_with_what_to_do(tmp_path, content, words):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(InvalidSetting, match=words):
        read_workflow(file)
    with pytest.raises(InvalidSetting, match=r"nothing cannot be read \(No such file or directory\)"):
        read_workflow(tmp_path / "nothing")


def test_a_picture_without_a_workflow_or_with_another_one_is_refused(tmp_path):
    with pytest.raises(InvalidSetting, match="has no workflow in it"):
        read_workflow(picture(tmp_path / "plain.png"))
    for text in ("{", '{"nodes": []}', "[]", '{"4": {"class_type": 4}}'):
        with pytest.raises(InvalidSetting):
            read_workflow(picture(tmp_path / "broken.png", prompt=text))
    whole = picture(tmp_path / "whole.png", prompt=json.dumps(PROMPT)).read_bytes()
    for length in range(8, len(whole) - 1):
        (tmp_path / "cut.png").write_bytes(whole[:length])
        try:
            assert read_workflow(tmp_path / "cut.png") == PROMPT  # what is missing are pixels
        except InvalidSetting:
            assert b"IDAT" not in whole[:length]


def test_a_title_is_one_line_without_commands_for_a_terminal():
    from paceline.faster.workflow import Workflow

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

    monkeypatch.setattr("paceline.faster.tuning.server.time.sleep", stop)
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
