"""Draw random graphs on one server for as long as there is time.

Each line is a graph; one that is wrong is printed whole, and its seed repeats it.
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import report
from graphs import Generator
from hosting import trust_server, write_loras
from judge import Judge, Verdict
from pack_graphs import PackGraphs, PackJudge
from slopes import said_of_growth
from step_graphs import StepGraphs, StepJudge

STATES = {"right": "right", "refused": "refused in one of our sentences", "not a graph": "that {} alone refuse",
          "wrong": "wrong"}  # fmt: skip
FAULTS = {"memory": "running out of memory", "error": "an error of another node", "cancel": "a cancel"}


def _packs_in(info: dict[str, Any]) -> set[str]:
    """Return the folders of packs of which the server has nodes."""
    return {str(node.get("python_module", "")).partition(".")[2] for node in info.values()}


def _commit(pack: Path) -> str:
    """Return the short commit of a clone; empty where it is none."""
    git = subprocess.run(["git", "-C", str(pack), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return git.stdout.strip()


def draw_graphs(
    first: int,
    count: int,
    minutes: float,
    compiled: float,
    backend: str = "eager",
    packs: Sequence[Path] = (),
    steps: bool = False,
) -> dict[str, Any]:
    """Draw graphs; return what was found, for the table in docs/TRUST.md.

    With ``inductor`` only those that compile, with ``steps`` those for Reuse Steps.
    """
    started, states, faults, wrong = time.monotonic(), Counter[str](), Counter[str](), list[str]()
    nodes: Counter[str] = Counter()
    memory: list[dict[str, float]] = []
    drawn = lost = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        trust_server(write_loras(Path(folder)), packs) as server,
        server.client() as client,
    ):
        info = client.object_info()
        kinds = (StepGraphs, StepJudge) if steps else (PackGraphs, PackJudge) if packs else (Generator, Judge)
        generator = kinds[0](info, compiled, *([backend] if kinds[0] is Generator else []))
        judge = kinds[1](client, server.output_dir, lambda: server.log)
        seeds = itertools.count(first)
        graphs = map(generator.graph, seeds) if backend == "eager" else generator.compiled_graphs(first)
        for graph in graphs:
            # Most nodes of a pack fit one model: graphs that they refuse without us count for nothing there.
            judged = drawn - (states["not a graph"] if packs else 0)
            if judged >= count or time.monotonic() - started > minutes * 60:
                break
            begun = time.monotonic()
            try:
                verdict = judge.judge(graph)
            except Exception as error:  # the server is gone, or hangs: that is a finding, and the last graph
                verdict = Verdict("wrong", [f"{type(error).__name__}: {error}"])
            drawn += 1
            states[verdict.state] += 1
            faults[verdict.faults] += 1
            lost += verdict.lost
            nodes.update(name for name, _ in (*graph.ours, *graph.core))
            what = f"{graph.seed} {graph.kind} {graph.shape} {verdict.faults}: {verdict.state}"
            took = time.monotonic() - begun
            print(f"{what}, distance {verdict.distance:.2g}, {took:.1f} s {verdict.note[:200]}", flush=True)
            if verdict.problems:
                wrong.append(f"seed {graph.seed}: {verdict.problems[0]}")
                print(f"  {graph}\n  " + "\n  ".join(verdict.problems), flush=True)
            if drawn % 10 == 0:
                memory.append(judge.memory())
    others = "other packs' nodes" if packs else "ComfyUI's own nodes"
    rows: list[tuple[str, Any]] = [("Graphs drawn", f"{drawn} of {count:,}")]
    rows += [(f"of these {text.format(others)}", states[state]) for state, text in STATES.items()]
    rows += [(f"with {text} in the middle of an extra run", faults[kind]) for kind, text in FAULTS.items()]
    rows += [("after which ComfyUI had lost sight of a model, see below", lost)]
    ours = sum(number for name, number in nodes.items() if name.startswith("Paceline"))
    rows += [("nodes of ours in them", ours)]
    rows += [("nodes of ComfyUI's that change a model in them", nodes.total() - ours)]
    above = ""
    if packs:
        rows += [("of these of other packs", sum(nodes[name] for name in generator.others))]
        above = f"Packs, each at its commit: {', '.join(f'{pack.name} {_commit(pack)}'.strip() for pack in packs)}."
        missing = sorted({*(pack.name for pack in packs)} - {*_packs_in(info)})
        above += f"\n\nNot imported: {', '.join(missing)}." if missing else ""
    return report.result(f"{drawn:,} graphs", rows, wrong, started, above=above, below=said_of_growth(memory))
