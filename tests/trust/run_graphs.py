"""Draw random graphs on one server for as long as there is time, and write what was found.

    .venv/bin/python tests/trust/run_graphs.py --first 0 --count 1000 --minutes 30

Each line is a graph; one that is wrong is printed whole, and ``--first SEED --count 1`` repeats it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / folder) for folder in ("tools", "tests", "tests/trust")]
    from comfy_host import standins

    standins.install()

from comfy_host.paths import commit
from graphs import Generator
from hosting import trust_server, write_loras
from judge import Judge, Verdict
from slopes import growth
from step_graphs import StepGraphs, StepJudge


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
    started, states, faults, wrong = time.monotonic(), Counter[str](), Counter[str](), []
    nodes: Counter[str] = Counter()
    memory: list[dict[str, float]] = []
    drawn = lost = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        trust_server(write_loras(Path(folder)), packs) as server,
        server.client() as client,
    ):
        info = client.object_info()
        generator = StepGraphs(info, compiled) if steps else Generator(info, compiled, backend)
        judge = (StepJudge if steps else Judge)(client, server.output_dir, lambda: server.log)
        seeds = range(first, first + count)
        graphs = map(generator.graph, seeds) if backend == "eager" else generator.compiled_graphs(first)
        for graph in islice(graphs, count):
            if time.monotonic() - started > minutes * 60:
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
                wrong.append({"seed": graph.seed, "graph": str(graph), "problems": verdict.problems})
                print(f"  {graph}\n  " + "\n  ".join(verdict.problems), flush=True)
            if drawn % 10 == 0:
                memory.append(judge.memory())
    return {
        "graphs": drawn,
        "of": count,
        "states": dict(states),
        "faults": dict(faults),
        "lost": lost,
        "wrong": wrong,
        "nodes": dict(nodes.most_common()),
        "minutes": (time.monotonic() - started) / 60,
        "first": first,
        "growth": growth(memory),
        "memory": memory,
        "commit": commit(),
        "packs": [pack.name for pack in packs],
        "others": [name for name in generator.others if name in nodes],
    }


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what was found by several processes side by side as if by one; of growth the largest of them."""

    def summed(name: str) -> dict[str, int]:
        return dict(sum((Counter(part[name]) for part in parts), Counter[str]()).most_common())

    return {
        **{name: sum(part[name] for part in parts) for name in ("graphs", "of", "lost")},
        **{name: summed(name) for name in ("states", "faults", "nodes")},
        "wrong": [entry for part in parts for entry in part["wrong"]],
        "minutes": max(part["minutes"] for part in parts),
        "first": min(part["first"] for part in parts),
        "growth": {name: max(part["growth"][name] for part in parts) for name in parts[0]["growth"]},
        "processes": len(parts),
        "commit": parts[0]["commit"],
        "packs": parts[0].get("packs", []),
        "others": sorted({name for part in parts for name in part.get("others", [])}),
    }


def draw_again(
    found: dict[str, Any], compiled: float, backend: str, packs: Sequence[Path], steps: bool
) -> dict[str, Any]:
    """Draw the graphs that were wrong once more, now that something was mended, and note what came of them.

    ``packs`` must be those of the run: with other nodes, a seed is another graph.
    """
    for entry in found["wrong"]:
        now = draw_graphs(entry["seed"], 1, 60.0, compiled, backend, packs, steps)
        entry |= {"again": ", ".join(now["states"]), "commit": commit()}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="seed of the first graph")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no graph after this")
    parser.add_argument("--compiled", type=float, default=0.1, help="share of graphs that may have compiled models")
    parser.add_argument(
        "--steps", action="store_true", help="graphs for Reuse Steps, with enough steps to leave some out"
    )
    parser.add_argument("--backend", default="eager", help="inductor: generate code, for graphs that compile only")
    parser.add_argument(
        "--packs", type=Path, nargs="+", default=[], help="folders of other node packs, whose nodes take part"
    )
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    parser.add_argument("--again", type=Path, nargs="+", help="join such files, and draw what was wrong once more")
    given = parser.parse_args()
    if given.again:
        before = joined([json.loads(file.read_text()) for file in given.again])
        found = draw_again(before, given.compiled, given.backend, given.packs, given.steps)
    else:
        found = draw_graphs(
            given.first, given.count, given.minutes, given.compiled, given.backend, given.packs, given.steps
        )
    print(json.dumps({name: found[name] for name in ("graphs", "states", "faults", "growth", "minutes")}, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1))
    return any(entry.get("again", "wrong") == "wrong" for entry in found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
