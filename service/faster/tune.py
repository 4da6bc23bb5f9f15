r"""``tune``: make a workflow faster, as "Make this workflow faster" does in the browser.

    python custom_nodes/ComfyUI-Paceline tune workflow.json --prove

Reads a workflow in the API format (in ComfyUI: File > Export (API)). A ComfyUI that runs already runs it once as it is,
then tries for at most half a minute or as long as that took what could make it faster, says what is expected,
and a faster workflow is written beside it, in the API format. With --prove the same seeds are drawn plain and faster,
which measures it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...optimizers.core.choices import CHOICES
from ...optimizers.core.errors import BackendUnavailable, InvalidSetting, PacelineError
from ...optimizers.core.files import parse_json, write_atomically
from .node_types import Prompt
from .workflow import Workflow

_ROUTE, _OUTCOMES = "/paceline/faster", "/paceline/outcomes"

_KEEP = "Paceline.KeepOutcomes"
"""The page's setting whether runs are kept."""

_SECONDS_TO_ANSWER, _SECONDS_BETWEEN_LOOKS = 60.0, 0.3

_HINT = "Name a workflow in the API format (in ComfyUI: File > Export (API))."


def main(arguments: Sequence[str]) -> int:
    """Make a workflow faster; return 0, 2 after an error of ours, or 130 where Ctrl-C stopped it."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except PacelineError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped. Nothing was written.", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    prompt = read_workflow(options.workflow)
    found = tune(Server(options.server), prompt, options.choice, options.prove)
    if found == prompt:
        print("Nothing was changed, so nothing was written.")
        return
    target = options.output or options.workflow.with_name(f"{options.workflow.stem}_faster.json")
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    write_atomically(target, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    print(target)


def read_workflow(path: Path) -> Workflow:
    """Return the prompt in a file; `InvalidSetting` if the file cannot be read, or has none."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
        json.dumps(found, ensure_ascii=False).encode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidSetting(f"{path} cannot be read ({reason}).", _HINT) from None
    if isinstance(found, dict) and isinstance(found.get("nodes"), list):
        # Only the page turns one into a prompt: subgraphs, bypassed nodes, primitives and widgets are its own.
        problem = f"{path} is a workflow of ComfyUI's Save, and not in the API format."
        raise InvalidSetting(problem, "Open it in ComfyUI and choose File > Export (API).")
    return Workflow.read(found)


def tune(server: Server, prompt: Prompt, choice: str, prove: bool) -> Prompt:
    """Return a faster prompt, as the server proposes it, and say on the way what is expected, and what was measured."""
    state = server.ask(_ROUTE, {"do": "look", "prompt": prompt, "choice": choice})
    _say(state)
    if state["why_not"]["text"]:
        return prompt
    state = server.ask(_ROUTE, {"do": "run", "prompt": prompt, "choice": choice})
    print("running the workflow once, as it is", flush=True)
    state = _followed(server, state)
    _say(state)
    offer = state["offer"]
    if offer is None:
        return prompt
    print(f"{offer['label']}: {offer['expected']['text']}; {offer['about']['text']}")
    if prove and not offer["proof_seconds"]:
        print("There is nothing to prove: only the VAE gets faster, and that was measured.")
    elif prove:
        print("drawing the same seeds plain and faster", flush=True)
        measured = _followed(server, server.ask(_ROUTE, {"do": "prove", "job": state["job"]}))["offer"]["measured"]
        print(measured["text"] if measured else "Nothing was measured.")
    elif offer["proof_seconds"]:
        least, most = offer["proof_seconds"]
        print(f"--prove would draw the same seeds plain and faster, which takes {least:.0f} to {most:.0f} s")
    kept: Prompt = server.ask(_ROUTE, {"do": "keep", "job": state["job"]})["prompt"]
    print(f"kept {offer['label']}")
    return kept


def _followed(server: Server, state: Any) -> Any:
    """Run what the server asks for until there is nothing more to run, and return what it says then."""
    while state["prompt"] is not None:
        started = time.monotonic()
        id, seconds = server.run(state["prompt"]), {}
        if state["phase"] == "run":  # of its nodes only the page is told
            seconds = {"otherNodes": time.monotonic() - started}
            if server.ask(f"/settings/{_KEEP}") is not False:
                server.ask(_OUTCOMES, {"prompt_id": id, "seconds": seconds, "nodes": [], "loaded": False})
        state = server.ask(_ROUTE, {"do": "next", "job": state["job"], "seconds": seconds})
        if state["phase"] == "probe":
            print("trying candidates", flush=True)
    return state


def _say(state: Any) -> None:
    if state["time"]:
        print(state["time"]["sentence"]["text"])
        for part in state["time"]["parts"]:
            name = part["name"] or re.sub("(?=[A-Z])", " ", part["kind"]).lower()
            print(f"  {name}: {part['seconds']:.2g} s. {part['remedy']['text']}")
    for line in (*(lever["said"] for lever in state["levers"]), *state["lines"], state["why_not"]):
        if line["text"]:
            print(line["text"])


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tune", description=__doc__, formatter_class=layout)
    add = parser.add_argument
    add("workflow", type=Path, help="a workflow in the API format")
    add("-o", "--output", type=Path, metavar="FILE", help="default: beside the workflow, with _faster in its name")
    choices = " ".join(f"{name}: {choice.label}. {choice.sentence}" for name, choice in CHOICES.items())
    add("--choice", choices=CHOICES, default="balanced", help=f"{choices} Default: balanced")
    add("--prove", action="store_true", help="draw the same two or three seeds plain and faster, and measure")
    add("--server", metavar="ADDRESS", default="http://127.0.0.1:8188", help="where ComfyUI runs, default: %(default)s")
    return parser


class Server:
    """Asks the server at an address like ``http://127.0.0.1:8188``; `InvalidSetting` for any other form."""

    def __init__(self, address: str) -> None:
        wrong = InvalidSetting(
            f"{address} is no address of a ComfyUI server.", "Write for example http://127.0.0.1:8188."
        )
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

        Raises `BackendUnavailable` if nothing answers, no ComfyUI does, or it does not have our routes,
        `InvalidSetting`, in the server's own words, if it refuses what was sent.
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
                f"No ComfyUI answers at {self.address} ({error}).", "Start it, or name another --server."
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
                f"The server at {self.address} is no ComfyUI, or it failed (status {response.status}).",
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
                for name, about in history[id].get("status", {}).get("messages", []):
                    if name in ("execution_error", "execution_interrupted"):
                        said = str(about.get("exception_message") or "").strip() or about.get("exception_type")
                        raise InvalidSetting(said or "The measurement was stopped.")
                return
            if id not in waiting:
                raise InvalidSetting("ComfyUI has lost the measurement.", "Look at its log, and start it again.")
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _refusal(answer: Any) -> str:
    answer = answer if isinstance(answer, dict) else {}
    for node in (answer.get("node_errors") or {}).values():
        for error in node["errors"]:
            return f"{node.get('class_type')}: {error['message']}: {error.get('details')}"
    error = answer.get("error", "The server refuses it without a reason.")
    return str(error.get("message") if isinstance(error, dict) else error)
