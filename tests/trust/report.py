"""Writes docs/TRUST.md from the results of the runs: no number in it is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "TRUST.md"
PARTS = (
    "graphs",
    "steps",
    "inductor",
    "packs",
    "verdicts",
    "bad_inputs",
    "faults",
    "soak",
    "webui",
    "pipelines",
    "peers",
)
TITLES = {
    "graphs": "Random graphs",
    "steps": "With enough steps for Reuse Steps",
    "inductor": "With generated code",
    "packs": "Beside other node packs",
    "bad_inputs": "Bad input",
    "faults": "Faults of machines",
    "soak": "Many clients at once",
    "webui": "Stable Diffusion WebUI and Forge",
    "pipelines": "Pipelines of diffusers",
    "peers": "Other projects' own tests",
}
"""Of the sections whose wrong answers are counted."""

_NOT_RUN = "Not run this time."
_LEAKS = ("lost_by_comfyui", "leaked")

Found = Mapping[str, Any]


def render(parts: Mapping[str, Found], before: str = "") -> str:
    """Return the document for what was found.

    What the one ``before`` says of a part that is missing stays; else it was not run, and that is said.
    """
    frame = (HERE / "trust.md").read_text(encoding="utf-8")
    kept = {name: _kept(before, frame, name) for name in PARTS}
    sections = (_graphs, _graphs, _graphs, _graphs, _verdicts, _bad_inputs, _faults, _soak, _webui, _pipelines, _peers)
    for name, section in zip(PARTS, sections, strict=True):
        text = section(parts[name]).strip() if name in parts else kept[name] or _NOT_RUN
        frame = frame.replace(f"<!-- {name} -->", text)
    return frame.replace("<!-- summary -->", _summary(parts, before))


def _kept(before: str, frame: str, name: str) -> str:
    """Return what a document says of a part: what stands between the lines around its place in the frame."""
    above, _, below = frame.partition(f"<!-- {name} -->")
    last, following = above.rstrip().rpartition("\n")[2], below.strip().partition("\n")[0]
    said = before.partition(f"{last}\n")[2]
    return said.partition(following if following and following in said else "\n## ")[0].strip()


def tried(parts: Mapping[str, Found]) -> list[tuple[str, str, int]]:
    """Return for each part that was run its title, how often it was tried, and how often the answer was wrong."""
    rows = [(TITLES[name], f"{parts[name]['graphs']:,} graphs", parts[name]["states"].get("wrong", 0))
            for name in ("graphs", "steps", "inductor", "packs") if name in parts]  # fmt: skip
    if found := parts.get("bad_inputs"):
        rows.append((TITLES["bad_inputs"], f"{found['cases']:,} inputs", found["answers"].get("unclear", 0)))
    if found := parts.get("faults"):
        kinds = [row for row in found.values() if isinstance(row, Mapping)]
        count, wrong = sum(row["tried"] for row in kinds), sum(len(row["wrong"]) for row in kinds)
        rows.append((TITLES["faults"], f"{count} faults", wrong))
    if found := parts.get("soak"):
        rows.append((TITLES["soak"], f"{sum(found['answers'].values())} answers", len(found["wrong"])))
    if found := parts.get("webui"):
        hosts = found["hosts"].values()
        requests, wrong = sum(one["requests"] for one in hosts), sum(len(one["wrong"]) for one in hosts)
        rows.append((TITLES["webui"], f"{requests} requests", wrong))
    if found := parts.get("pipelines"):
        rows.append((TITLES["pipelines"], f"{found['pipelines']} pipelines", len(found["wrong"])))
    if found := parts.get("peers"):
        peers = [one for one in found.values() if isinstance(one, Mapping)]
        count, lost = sum(one["plain"].get("passed", 0) for one in peers), sum(len(one["lost"]) for one in peers)
        rows.append((TITLES["peers"], f"{count:,} tests", lost))
    return rows


def _summary(parts: Mapping[str, Found], before: str) -> str:
    rows = {title: f"| [{title}](#{_anchor(title)}) | {often} | {wrong} |" for title, often, wrong in tried(parts)}
    said = {line.partition("](")[0][3:]: line for line in before.splitlines() if line.startswith("| [")}
    order = {title: place for place, title in enumerate(TITLES.values())}
    lines = sorted({**said, **rows}.items(), key=lambda row: order[row[0]])
    return "\n".join(("| | Tried | Wrong |", "|---|---:|---:|", *(line for _, line in lines)))


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-").replace("'", "")


def write(folder: Path) -> None:
    """Write the document from the JSON files in ``folder``, one for each part; what it says of other parts stays."""
    files = {name: folder / f"{name}.json" for name in PARTS}
    parts = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    before = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else ""
    DOCUMENT.write_text(render(parts, before), encoding="utf-8")


def _graphs(found: Found) -> str:
    most = f" of {found['of']:,}" if "of" in found else ""
    states, rows = found["states"], [("Graphs drawn", f"{found['graphs']}{most}")]
    others = "other packs' nodes" if found.get("packs") else "ComfyUI's own nodes"
    names = {
        "right": "right",
        "refused": "refused in one of our sentences",
        "not a graph": f"that {others} alone refuse",
        "wrong": "wrong",
    }
    rows += [(f"of these {text}", states.get(state, 0)) for state, text in names.items()]
    kinds = {"memory": "running out of memory", "error": "an error of another node", "cancel": "a cancel"}
    rows += [
        (f"with {text} in the middle of an extra run", found["faults"].get(kind, 0)) for kind, text in kinds.items()
    ]
    rows += [("after which ComfyUI had lost sight of a model, see below", found.get("lost", 0))]
    ours = {name: count for name, count in found["nodes"].items() if name.startswith("Paceline")}
    rows += [("nodes of ours in them", sum(ours.values())), ("nodes of ComfyUI's that change a model in them",
             sum(found["nodes"].values()) - sum(ours.values()))]  # fmt: skip
    text = ""
    if found.get("packs"):
        rows += [("of these of other packs", sum(found["nodes"][name] for name in found["others"]))]
        text = f"Packs, each at its commit: {', '.join(found['packs'])}.\n\n"
        text += f"Not imported: {', '.join(found['not_imported'])}.\n\n" if found.get("not_imported") else ""
    text += _table(rows) + _about(found)
    growth = ", ".join(f"{name.replace('_', ' ')} {value:+.3g}" for name, value in found["growth"].items()
                       if name not in _LEAKS)  # fmt: skip
    text += f"\nGrowth over ten graphs, in the second half of the run: {growth or 'not measured'}.\n"
    if found["wrong"]:
        wrong = [f"- seed {entry['seed']}: {entry['problems'][0].splitlines()[0]}{_again(entry)}" for entry in
                 found["wrong"]]  # fmt: skip
        text += "\nWrong in this run:\n\n" + "\n".join(wrong) + "\n"
    return text


def _again(wrong: Found) -> str:
    """Say what came of a graph that was wrong when it was drawn again, after something was mended."""
    return f". Drawn again at commit {wrong['commit']}: {wrong['again']}" if "again" in wrong else ""


def _verdicts(found: Found) -> str:
    runs, rounds = found["runs"], ", ".join(map(str, found["rounds"]))
    pictures = _table([(f"{name}: wrong verdicts of {runs:,}", wrong) for name, wrong in found["pictures"].items()])
    fixed = f"Shares of {runs:,} verdicts for each of {rounds} rounds together, on a model that is\n\n"
    clear = "\n\nThe same from 3 rounds on, up to 9 until the time is clear\n\n"
    return fixed + _times(found["times"]) + clear + _times(found["until_clear"]) + "\n\n" + pictures + _about(found)


def _times(machines: Found) -> str:
    kinds = {"1.00": "as fast", "1.03": "3 % faster", "0.97": "3 % slower"}
    lines = [f"| machine | {' | '.join(kinds.values())} |", "|---|---:|---:|---:|"]
    for machine, rows in machines.items():
        cells = [f"{row['wrong'] / row['of']:.1%} false, {row['uncertain'] / row['of']:.0%} not certain" for row in
                 map(rows.__getitem__, kinds)]  # fmt: skip
        lines.append(f"| {machine} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _bad_inputs(found: Found) -> str:
    rows = [("Cases given", f"{found['cases']} of {found['possible']} that there are")]
    rows += [(kind, count) for kind, count in sorted(found["answers"].items())]
    rows += [("unclear", 0)] if "unclear" not in found["answers"] else []
    return _table(rows) + _about(found)


def _faults(found: Found) -> str:
    rows = [(f"`{name}`" if name.startswith("--") else name, f"{row['tried']} tried, {len(row['wrong'])} wrong")
            for name, row in found.items() if isinstance(row, Mapping)]  # fmt: skip
    return _table(rows) + _about({"minutes": sum(row["minutes"] for row in found.values() if isinstance(row, Mapping)),
                                  "commit": found.get("commit", "")})  # fmt: skip


def _soak(found: Found) -> str:
    rows = [("Clients at once", found["clients"]), *sorted(found["answers"].items()), ("wrong", len(found["wrong"]))]
    if found["memory"]:
        first, last = found["memory"][len(found["memory"]) // 2], found["memory"][-1]
        rows += [(f"{name.replace('_', ' ')}, middle and end", f"{first[name]:g}, {last[name]:g}") for name in first
                 if name not in _LEAKS]  # fmt: skip
    rows += [("models that ComfyUI has lost sight of, see below", found.get("lost", 0))]
    rows += _tabs(found["tabs"]) if found.get("tabs") else [("tabs of a browser", "no browser was found")]
    return _table(rows) + _about(found) + "".join(f"\n- {problem.splitlines()[0]}" for problem in found["wrong"])


def _webui(found: Found) -> str:
    hosts = {"WEBUI": "Stable Diffusion WebUI", "FORGE": "Forge"}
    rows, wrong = [], []
    for name, one in found["hosts"].items():
        states = ", ".join(f"{count} {state}" for state, count in sorted(one["states"].items()))
        faults = ", ".join(f"{count} {fault}" for fault, count in sorted(one["faults"].items()))
        rows.append((f"{hosts[name]}: requests", f"{one['requests']} of {one['of']}: {states}; {faults}"))
        wrong += [f"- {hosts[name]}, seed {entry['seed']}: {entry['problems'][0]}" for entry in one["wrong"]]
    return _table(rows) + _about(found) + "".join(f"\n{line}" for line in wrong)


def _pipelines(found: Found) -> str:
    rows = [("Pipelines", f"{found['pipelines']}, from seed {found['first']}"), ("pictures drawn", found["pictures"])]
    rows += [(f"events: {name}", count) for name, count in found["events"].items()]
    rows += [("of the calls of `optimize`, refused in one of our sentences", found["refusals"])]
    wrong = [f"\n- seed {one['seed']}: {one['problems'][0]}{_again(one)}" for one in found["wrong"]]
    return _table([*rows, ("wrong", len(wrong))]) + _about(found) + "".join(wrong)


def _peers(found: Found) -> str:
    text = ""
    for name, one in found.items():
        if isinstance(one, Mapping):
            plain, ours = one["plain"], one["ours"]
            rows = [("passed plain", plain.get("passed", 0)), ("passed with ours", ours.get("passed", 0))]
            rows += [("failed both ways, most for want of a file", plain.get("failed", 0) - len(one["won"]))]
            rows += [("skipped", plain.get("skipped", 0))]
            rows += [(f"put on new models: {what}", count) for what, count in one["put_on"].items()]
            tests = ", ".join(f"`{file}`" for file in one.get("tests", ()))
            text += f"{name} {one['version']}, its tests at commit {one['commit']}: {tests}\n\n" + _table(rows)
            whys = one.get("why", {})  # what came of it when somebody looked
            text += "".join(f"\n- passes plain only: `{test}`. {whys.get(test, '')}".rstrip() for test in one["lost"])
            text += "".join(f"\n- passes with ours only: `{test}`" for test in one["won"])
    return text + (f"\nAt commit {found['commit']}.\n" if found.get("commit") else "")


def _tabs(found: Found) -> list[tuple[str, Any]]:
    text = [", ".join(f"{value:+.2g}" for value in values) for values in found["growth"].values()]
    return [
        ("tabs of a browser: runs of the first and of the second", ", ".join(map(str, found["runs"]))),
        ("states of badges seen in them", found["looks"]),
        ("growth of a tab's memory by a run, in kB; the last of the three tabs is without our scripts", text[0]),
        ("growth of elements of the page by a run", text[1]),
        ("growth of listeners of the page by a run", text[2]),
    ]


def _table(rows: list[tuple[str, Any]]) -> str:
    return "| | |\n|---|---:|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows) + "\n"


def _about(found: Found) -> str:
    commit = f", at commit {found['commit']}" if found.get("commit") else ""
    return f"\n{found['minutes']:.0f} minutes{commit}.\n"
