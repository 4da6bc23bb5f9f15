r"""``tune``: make a workflow faster, as "Make this workflow faster" does in the browser.

    python custom_nodes/ComfyUI-Paceline tune workflow.json --measure

Reads a workflow in the API format (in ComfyUI: File > Export (API)), or a PNG that ComfyUI has saved, which has its
workflow in it, and writes a faster one beside it, in the API format. With --measure each node is measured on this
machine with the workflow's own model, size and sampler, and only what is certainly faster stays; then fewer steps,
other samplers and budgets of Reuse Steps are tried, and the fastest stays that draws the picture. What comes after --
goes to ComfyUI.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ....core.choices import CHOICES
from ....core.files import write_atomically
from ...exit_status import exit_status
from ...search.engine import FIRST, MOST
from ..prompt import Prompt
from ..standalone import find_comfyui, split_arguments
from ..workflow import Workflow
from .reading import read_workflow
from .rewrite import Rewritten, settings_of
from .server import Server, start_server
from .settings_search import asked, draw, report


def main(arguments: Sequence[str], pack: Path) -> int:
    """Make a workflow faster and return the exit status; ``pack`` is the folder of this pack, as it was named."""
    own, comfyuis = split_arguments(arguments)
    options = _parser().parse_args(own)
    return exit_status(lambda: _run(options, comfyuis, pack), "Stopped. Nothing was written.")


def _run(options: argparse.Namespace, comfyuis: Sequence[str], pack: Path) -> None:
    prompt = read_workflow(options.workflow)
    address = options.server
    server = Server(address) if address else start_server(find_comfyui(options.comfyui, pack), comfyuis)
    found = tune(server, prompt, options.choice, options.pictures if options.measure else 0.0)
    if found == prompt:
        print("Nothing was changed, so nothing was written.")
        return
    target = options.output or options.workflow.with_name(f"{options.workflow.stem}_faster.json")
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    write_atomically(target, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    print(target)


def tune(server: Server, prompt: Prompt, choice: str, most: float) -> Prompt:
    """Return a faster prompt, as the server proposes it, and say on the way what is done and why.

    With ``most`` only what is certainly faster here is kept, and other settings are tried with at most the work of so
    many pictures.
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
    kept, edits = [], []
    for at, wire in enumerate(wires):
        steps, edited = _kept(server, faster, at, wire, choice, most)
        kept.append((wire, steps))
        edits += edited
    if not most:
        print("Nothing was measured. With --measure only what is certainly faster on this machine stays.")
    made = _rewritten(server, prompt, kept, choice).prompt
    for edit in edits:
        made[edit["node"]]["inputs"][edit["input"]] = edit["after"]
    return made


def _kept(
    server: Server, faster: Rewritten, at: int, wire: Mapping[str, Any], choice: str, most: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the nodes to insert on a wire, and the widgets of others to change."""
    steps, chain = list(wire["plans"][choice]["steps"]), faster.chains[at]
    where = ", ".join(Workflow(faster.prompt).title(receiver["node"]) for receiver in wire["receivers"])
    names = [settings_of(faster.prompt[id], step) for id, step in zip(chain, steps, strict=True)]
    for foreign in wire["plans"][choice]["foreign"]:
        print(f"converted to {Workflow(faster.prompt).title(foreign['node'])}, for {where}")
    if not most:
        for name in names:
            print(f"inserted {name}, for {where}")
        return steps, []
    searched = asked(faster.prompt, wire, chain, choice)
    first = server.ask("/paceline/search", searched) if wire["name"] == "model" else {"why_not": "no model"}
    if not first["why_not"]:  # which also tries these
        left = [place for place, id in enumerate(chain) if id not in first["own"]]
        steps, chain, names = ([every[place] for place in left] for every in (steps, chain, names))
        print(f"trying other settings, for {where}: at most the work of {most:g} pictures", flush=True)
        if chain and (trades := draw(server, searched | {"most": min(most, FIRST)})["trades"]):
            print(f"first answer, for {where}: {trades[-1]['gain']:.2f}x less work with {trades[-1]['label']}")
    kept, best = _measured(server, faster.prompt, chain, names, wire["name"], choice, where) if chain else ([], None)
    if first["why_not"]:
        return [steps[chain.index(id)] for id in kept], []
    beside = {"kept": kept, "faster": best["speedup"] if best else 1.0, "most": most}
    found = report(draw(server, searched | beside), where)
    if found is not None and not found["with_nodes"]:
        kept = []
    steps = [steps[chain.index(id)] for id in kept]
    return (steps, []) if found is None else ([*steps, *found["steps"]], found["edits"])


def _measured(
    server: Server, prompt: Prompt, chain: list[str], names: list[str], name: str, choice: str, where: str
) -> tuple[list[str], Any]:
    """Return which of a chain's nodes are worth it, by their ids, and what is known of them together."""
    sent = {"prompt": prompt, "choice": choice, "chain": chain, "name": name}
    findings: list[Any] = []
    while True:
        state = server.ask("/paceline/trial", {**sent, "findings": findings})
        if state["why_not"]:
            for title in names:
                print(f"inserted {title}, for {where}, and did not measure it: {state['why_not']}")
            return chain, None
        if state["prompt"] is None:
            break
        node = state["node"]
        print(f"measuring {names[chain.index(node)] if node else 'all of it together'}, for {where}", flush=True)
        shown = server.run(state["prompt"])
        findings += [entry["paceline_comparison"][0] for entry in shown.values() if "paceline_comparison" in entry]
    for title, one in zip(names, state["judged"], strict=True):
        print(f"{'kept' if one['kept'] else 'left out'} {title}, for {where}: {one['verdict']}")
    if state["best"] is not None:
        cost = f" Compiling took {state['once']:.0f} s once." if state["once"] > 1 else ""
        print(f"All of it, for {where}: {state['best']['verdict']}{cost}")
    return [one["node"] for one in state["judged"] if one["kept"]], state["best"]


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
    choices = " ".join(f"{name}: {choice.label}. {choice.sentence}" for name, choice in CHOICES.items())
    add("--choice", choices=CHOICES, default="balanced", help=f"{choices} Default: balanced")
    add("--measure", action="store_true", help="measure each node here, and keep only what is certainly faster")
    pictures = f"try settings for the work of N pictures; default: {MOST:g}"
    add("--pictures", type=float, default=MOST, metavar="N", help=pictures)
    add("--server", metavar="ADDRESS", help="a ComfyUI that runs, e.g. http://127.0.0.1:8188; default: start one")
    add("--comfyui", metavar="FOLDER", help="ComfyUI's folder; default: COMFYUI_PATH, or where this pack is installed")
    return parser
