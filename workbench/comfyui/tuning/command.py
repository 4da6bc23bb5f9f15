r"""``tune``: make a workflow faster, as "Make this workflow faster" does in the browser.

    python custom_nodes/ComfyUI-Paceline tune workflow.json --measure

Reads a workflow in the API format (in ComfyUI: File > Export (API)), or a PNG that ComfyUI has saved, which has its
workflow in it, and writes a faster one beside it, in the API format. With --measure each node is measured on this
machine with the workflow's own model, size and sampler, and only what is certainly faster stays. What comes after --
goes to ComfyUI.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ....core.files import write_atomically
from ...exit_status import exit_status
from ..prompt import Prompt, title_of
from ..standalone import find_comfyui, split_arguments
from .reading import read_workflow
from .rewrite import Rewritten, settings_of
from .server import Server, start_server

_CHOICES = {
    "lossless": "the picture stays the same, but for rounding",
    "balanced": "the difference is hardly visible",
    "fast": "fastest: detail may change where you can see it side by side",
}


def main(arguments: Sequence[str], pack: Path) -> int:
    """Make a workflow faster and return the exit status; ``pack`` is the folder of this pack, as it was named."""
    own, comfyuis = split_arguments(arguments)
    options = _parser().parse_args(own)
    return exit_status(lambda: _run(options, comfyuis, pack), "Stopped. Nothing was written.")


def _run(options: argparse.Namespace, comfyuis: Sequence[str], pack: Path) -> None:
    prompt = read_workflow(options.workflow)
    address = options.server
    server = Server(address) if address else start_server(find_comfyui(options.comfyui, pack), comfyuis)
    found = tune(server, prompt, options.choice, options.measure)
    if found == prompt:
        print("Nothing was changed, so nothing was written.")
        return
    target = options.output or options.workflow.with_name(f"{options.workflow.stem}_faster.json")
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    write_atomically(target, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    print(target)


def tune(server: Server, prompt: Prompt, choice: str, measure: bool) -> Prompt:
    """Return a faster prompt, as the server proposes it, and say on the way what is done and why.

    With ``measure`` only what is certainly faster here is kept.
    """
    wires = server.ask("/paceline/advice", prompt)["wires"]
    if not wires:
        print("This workflow has no sampler with a model, and no VAE that decodes.")
        return prompt
    for note in dict.fromkeys(note for wire in wires for note in wire["notes"]):
        print(note)
    faster = _rewritten(server, prompt, [(wire, wire["plans"][choice]["steps"]) for wire in wires], choice)
    if faster.prompt == prompt:
        print("Nothing is left to insert: the nodes for this choice are there already.")
        return prompt
    kept = [(wire, _kept(server, faster, at, wire, choice, measure)) for at, wire in enumerate(wires)]
    if not measure:
        print("Nothing was measured. With --measure only what is certainly faster on this machine stays.")
    return _rewritten(server, prompt, kept, choice).prompt


def _kept(
    server: Server, faster: Rewritten, at: int, wire: Mapping[str, Any], choice: str, measure: bool
) -> list[dict[str, Any]]:
    steps, chain = list(wire["plans"][choice]["steps"]), faster.chains[at]
    where = ", ".join(title_of(faster.prompt, receiver["node"]) for receiver in wire["receivers"])
    names = [settings_of(faster.prompt[id], step) for id, step in zip(chain, steps, strict=True)]
    for foreign in wire["plans"][choice]["foreign"]:
        print(f"converted to {title_of(faster.prompt, foreign['node'])}, for {where}")
    if not measure or not steps:
        for name in names:
            print(f"inserted {name}, for {where}")
        return steps
    sent = {"prompt": faster.prompt, "choice": choice, "chain": chain, "name": wire["name"]}
    findings: list[Any] = []
    while True:
        state = server.ask("/paceline/trial", {**sent, "findings": findings})
        if state["why_not"]:
            for name in names:
                print(f"inserted {name}, for {where}, and did not measure it: {state['why_not']}")
            return steps
        if state["prompt"] is None:
            break
        node = state["node"]
        print(f"measuring {names[chain.index(node)] if node else 'all of it together'}, for {where}", flush=True)
        shown = server.run(state["prompt"])
        findings += [entry["paceline_comparison"][0] for entry in shown.values() if "paceline_comparison" in entry]
    for name, one in zip(names, state["judged"], strict=True):
        print(f"{'kept' if one['kept'] else 'left out'} {name}, for {where}: {one['verdict']}")
    if state["best"] is not None:
        cost = f" Compiling took {state['once']:.0f} s once." if state["once"] > 1 else ""
        print(f"All of it, for {where}: {state['best']['verdict']}{cost}")
    return [step for step, one in zip(steps, state["judged"], strict=True) if one["kept"]]


def _rewritten(
    server: Server, prompt: Prompt, steps: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]], choice: str
) -> Rewritten:
    @cache
    def describe(node: str) -> Any:
        return server.ask(f"/object_info/{node}")[node]

    made, conversions = Rewritten.of(prompt, describe), server.ask("/paceline/conversions")
    for wire, chosen in steps:
        for foreign in wire["plans"][choice]["foreign"]:
            if foreign["node"] in prompt and made.prompt[foreign["node"]] == prompt[foreign["node"]]:
                slots = conversions[prompt[foreign["node"]]["class_type"]]
                made.convert(foreign["node"], foreign["to"], foreign["inputs"], slots["input"], slots["our_input"])
        made.insert(wire, chosen)
    return made


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("workflow", type=Path, help="a workflow in the API format, or a PNG that ComfyUI has saved")
    add("-o", "--output", type=Path, metavar="FILE", help="default: beside the workflow, with _faster in its name")
    choices = "; ".join(f"{name}: {sentence}" for name, sentence in _CHOICES.items())
    add("--choice", choices=_CHOICES, default="balanced", help=f"{choices}; default: balanced")
    add("--measure", action="store_true", help="measure each node here, and keep only what is certainly faster")
    add("--server", metavar="ADDRESS", help="a ComfyUI that runs, e.g. http://127.0.0.1:8188; default: start one")
    add("--comfyui", metavar="FOLDER", help="ComfyUI's folder; default: COMFYUI_PATH, or where this pack is installed")
    return parser
