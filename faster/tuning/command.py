r"""``tune``: make a workflow faster, as "Make this workflow faster" does in the browser.

    python custom_nodes/ComfyUI-Paceline tune workflow.json --prove

Reads a workflow in the API format (in ComfyUI: File > Export (API)), or a PNG that ComfyUI has saved, which has its
workflow in it. It runs the workflow once as it is, then tries for at most half a minute or the work of one more picture
what could make it faster, says what is expected, and writes a faster workflow beside it, in the API format. With
--prove the same seeds are drawn plain and faster, which measures it. What comes after -- goes to ComfyUI.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.choices import CHOICES
from ...core.files import write_atomically
from ...workbench.comfyui.standalone import command_parser, exit_status, find_comfyui, read_arguments
from ..node_types import Prompt
from .reading import read_workflow
from .server import Server, start_server

_ROUTE, _OUTCOMES = "/paceline/faster", "/paceline/outcomes"

_KEEP = "Paceline.KeepOutcomes"
"""The page's setting whether runs are kept."""


def main(arguments: Sequence[str], pack: Path) -> int:
    """Make a workflow faster and return the exit status; ``pack`` is the folder of this pack, as it was named."""
    options, comfyuis = read_arguments(_parser(), arguments)
    return exit_status(lambda: _run(options, comfyuis, pack), "Stopped. Nothing was written.")


def _run(options: argparse.Namespace, comfyuis: Sequence[str], pack: Path) -> None:
    prompt = read_workflow(options.workflow)
    address = options.server
    server = Server(address) if address else start_server(find_comfyui(options.comfyui, pack), comfyuis)
    found = tune(server, prompt, options.choice, options.prove)
    if found == prompt:
        print("Nothing was changed, so nothing was written.")
        return
    target = options.output or options.workflow.with_name(f"{options.workflow.stem}_faster.json")
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    write_atomically(target, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    print(target)


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
        print("There is nothing to prove: only its VAE gets faster, and that was measured.")
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
            print("probing what could make it faster", flush=True)
    return state


def _say(state: Any) -> None:
    if state["time"]:
        print(state["time"]["sentence"]["text"])
        for part in state["time"]["parts"]:
            name = part["name"] or re.sub("(?=[A-Z])", " ", part["kind"]).lower()
            print(f"  {name}: {part['seconds']:.2g} s. {part['remedy']['text']}")
    for line in (*state["lines"], state["why_not"]):
        if line["text"]:
            print(line["text"])


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("tune", __doc__)
    add = parser.add_argument
    add("workflow", type=Path, help="a workflow in the API format, or a PNG that ComfyUI has saved")
    add("-o", "--output", type=Path, metavar="FILE", help="default: beside the workflow, with _faster in its name")
    choices = " ".join(f"{name}: {choice.label}. {choice.sentence}" for name, choice in CHOICES.items())
    add("--choice", choices=CHOICES, default="balanced", help=f"{choices} Default: balanced")
    add(
        "--prove",
        action="store_true",
        help="draw the same two or three seeds plain and faster, and measure",
    )
    add("--server", metavar="ADDRESS", help="a ComfyUI that runs, e.g. http://127.0.0.1:8188; default: start one")
    return parser
