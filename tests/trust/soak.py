"""Many API clients at once for many minutes: every prompt is answered, each client gets its own, and memory is flat."""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prompts
import report
from building import Prompt
from comfy_host.client import ComfyClient, PromptFailed, without_proxy
from comfy_host.server import ComfyServer
from graphs import Generator, Graph
from hosting import trust_server, write_loras
from judge import is_sentence_of_ours
from slopes import growing

if TYPE_CHECKING:
    from tabs import Tabs


@dataclass
class Soak:
    """What was done and what was wrong; written by all clients under a lock."""

    answers: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    memory: list[dict[str, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kind: str, problem: str = "") -> None:
        """Count an answer, and keep what was wrong with it."""
        with self.lock:
            self.answers[kind] += 1
            if problem:
                self.problems.append(problem)


class Client:
    """One API client with a graph of its own, which it draws again and again.

    Args:
        number: tells clients apart; also the seed of what it does.
        server: where.
        graph: what it draws.
        soak: where it notes what came of it.
    """

    def __init__(self, number: int, server: ComfyServer, graph: Graph, soak: Soak) -> None:
        self.number, self.server, self.graph, self.soak = number, server, graph, soak
        self.draw = random.Random(number)
        self.expected: str | None = None

    def work(self, until: float, most: int) -> None:
        """Draw until the time is over, or ``most`` prompts are done."""
        with self.server.client() as client:
            for turn in range(most):
                if time.monotonic() > until:
                    return
                try:
                    self.turn(client, turn)
                except PromptFailed as error:
                    self.failed(error)
                except Exception as error:
                    self.soak.note("no answer", f"client {self.number}: {type(error).__name__}: {error}")

    def turn(self, client: ComfyClient, turn: int) -> None:
        """Do one thing: mostly draw, sometimes cancel what it has queued itself, or send what is broken."""
        what = self.draw.random()
        prompt = self.graph.prompt(True, 0, self.number * 10**6 + turn)
        if what < 0.1:
            self.soak.note(send_broken_file(self.server.base_url, self.draw))
        elif what < 0.2:
            queued = client.queue(prompt)
            client.post("/queue", {"delete": [queued]})
            client.post("/interrupt", {"prompt_id": queued})
            self.soak.note("cancelled")
        elif what < 0.25:
            client.queue({"0": {"class_type": "PacelineFuseQKV", "inputs": {}}})
        else:
            self.drawn(client, prompt)

    def drawn(self, client: ComfyClient, prompt: Prompt) -> None:
        """Draw the graph; it must be the same picture each time, and what is told must be about its own nodes."""
        result = client.run(prompt, timeout=600.0)
        shown = next(json.loads(texts[0]) for texts in result.texts.values() if texts[0].startswith('{"digest'))
        self.expected = self.expected or shown["digest"]
        strange = [
            event
            for event in result.of_type("paceline.activity")
            if event["prompt_id"] != result.prompt_id or event["node"] not in prompt
        ]
        if shown["digest"] != self.expected:
            self.soak.note("another picture", f"client {self.number}: another picture than before: {self.graph}")
        elif strange:
            self.soak.note("cross-talk", f"client {self.number} was told of another's run: {strange[0]}")
        else:
            self.soak.note("right")

    def failed(self, error: PromptFailed) -> None:
        """Note a refusal: of ComfyUI's validation, or one of our sentences."""
        refused = is_sentence_of_ours(error) or not error.traceback
        what = f"client {self.number}: {error.node_type}: {error.exception_type}: {error}"
        self.soak.note("refused" if refused else "failed", "" if refused else what)


def send_broken_file(base_url: str, draw: random.Random) -> str:
    """Upload a file that is no picture, under a picture's name; the server must answer."""
    mark = uuid.uuid4().hex
    head = f'--{mark}\r\nContent-Disposition: form-data; name="image"; filename="{mark}.png"\r\n\r\n'
    body = head.encode() + draw.randbytes(2000) + f"\r\n--{mark}--\r\n".encode()
    request = urllib.request.Request(f"{base_url}/upload/image", data=body)
    request.add_header("Content-Type", f"multipart/form-data; boundary={mark}")
    try:
        with without_proxy.open(request, timeout=60) as answer:
            answer.read()
    except urllib.error.HTTPError:
        return "upload refused"
    return "uploaded"


def soak(server: ComfyServer, clients: int, minutes: float, most: int, tabs: Tabs | None = None) -> Soak:
    """Let ``clients`` work for ``minutes``, each at most ``most`` prompts, and return what came of it.

    Args:
        server: where.
        clients: how many at once.
        minutes: for how long.
        most: prompts of each client.
        tabs: of a browser, which work at the same time.
    """
    done = Soak()
    with server.client() as client:
        generator = Generator(client.object_info(), compiled=0.0)
        graphs = _graphs(generator, client, clients)
        until = time.monotonic() + minutes * 60
        threads = [
            threading.Thread(target=Client(number, server, graph, done).work, args=(until, most), daemon=True)
            for number, graph in enumerate(graphs)
        ]
        threads += [threading.Thread(target=tabs.work, args=(until,), daemon=True)] if tabs else []
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(timeout=0.2)
            done.memory.append(look(client))
            time.sleep(2.0)
            if time.monotonic() > until + 900:
                done.note("hang", "clients still wait 15 minutes after the end")
                break
        done.memory.append(look(client))
        if not client.run(prompts.picture(again=10**9)).texts:
            done.note("no answer", "the last picture")
    return done


def _graphs(generator: Generator, client: ComfyClient, count: int) -> list[Graph]:
    """Return graphs that ComfyUI draws, by their seeds."""
    chosen: list[Graph] = []
    seed = 9000
    while len(chosen) < count:
        graph = generator.graph(seed, quick=True)
        seed += 1
        try:
            client.run(graph.prompt(True, 0, seed), timeout=300.0)
        except PromptFailed:
            continue
        chosen.append(graph)
    return chosen


def look(client: ComfyClient) -> dict[str, float]:
    """Return what the server holds; a prompt like any other, behind all that wait."""
    prompt = {"0": {"class_type": "TrustMemory", "inputs": {"again": random.randrange(2**32)}}}
    found: dict[str, Any] = json.loads(client.run(prompt, timeout=900.0).texts["0"][0])
    return found


def grows(memory: list[dict[str, float]]) -> list[str]:
    """Return what of the server's memory grows."""
    return growing(memory, ("modules", "tensors", "resident_kb"))


def run_soak(clients: int, minutes: float, most: int) -> dict[str, Any]:
    """Let clients and tabs work, and return what was found, for the table in docs/TRUST.md."""
    from tabs import browser_tabs

    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        trust_server(write_loras(Path(folder))) as server,
        browser_tabs(server) as tabs,
    ):
        done = soak(server, clients, minutes, most, tabs)
        seen = tabs.found() if tabs else None
        problems = done.problems + grows(done.memory) + (seen["wrong"] if seen else [])
        lost, leaked = (sum(look[name] for look in done.memory) for name in ("lost_by_comfyui", "leaked"))
        if leaked or ("memory leak" in server.log and not lost):
            problems.append("ComfyUI sees a model that is held by nobody it knows")
    rows = [("Clients at once", clients), *sorted(done.answers.items()), ("wrong", len(problems))]
    if done.memory:
        first, last = done.memory[len(done.memory) // 2], done.memory[-1]
        names = [name for name in first if name not in ("lost_by_comfyui", "leaked")]
        rows += [(f"{name.replace('_', ' ')}, middle and end", f"{first[name]:g}, {last[name]:g}") for name in names]
    rows += [("models that ComfyUI has lost sight of, see below", lost)]
    rows += seen["rows"] if seen else [("tabs of a browser", "no browser was found")]
    return report.result(f"{done.answers.total()} answers", rows, problems, started, memory=done.memory)
