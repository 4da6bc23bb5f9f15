"""The plots of step_caches.py, block_caches.py and peers.py: how near the picture stays, over the work that is left.

``python benchmarks/pages/plots.py FILE.json`` draws that of a file of results anew; of several files one plot, to the
picture that is named last.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[dict[str, Any]]
FEWER, LATE, REUSE, TOME = "fewer steps", "late levels left out", "Reuse Steps", "Apply ToMe"
PLAIN = {"steps": FEWER, "levels": LATE}
"""What the plain model draws with less work, by the last word of a row's name."""
COLORS = {REUSE: "#0072b2", FEWER: "#222222", LATE: "#777777", "EasyCache": "#d55e00", "LazyCache": "#009e73",
          "DeepCache": "#b0589a", "Spectrum": "#e69f00", "TeaCache": "#d55e00", "MagCache": "#009e73",
          "First Block": "#b0589a", "cache-dit": "#e69f00", "cache-dit, TaylorSeer": "#56b4e9",
          TOME: "#0072b2", "ComfyUI TomePatchModel": "#d55e00"}  # fmt: skip
"""Told apart by colour-blind eyes too, on white; of those of one plot."""
LEGEND = {REUSE: "Reuse Steps, with its budget", TOME: "Apply ToMe, presets"}
LABELS = {"psnr": "mean of the pictures, dB", "psnr_worst": "worst of the pictures, dB"}
HIGHEST = 70
"""dB; what is nearer is drawn there."""


def plot(rows: Rows, path: Path) -> None:
    """Draw a file's rows, a column for each work, if there is something to see side by side."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    works = list(dict.fromkeys(row["work"] for row in rows if _method(row) in COLORS.keys() - {*PLAIN.values(), REUSE}))
    if not works:
        return
    size = (max(1.2 + 3.6 * len(works), 7.5), 7.4)
    figure, panels = pyplot.subplots(
        2, len(works), figsize=size, sharex="col", sharey=True, squeeze=False, layout="constrained"
    )
    of_work = any(_method(row) == TOME for row in rows)
    for column, work in enumerate(works):
        found = [row for row in rows if row["work"] == work]
        for field, panel in zip(LABELS, panels[:, column], strict=True):
            _draw(panel, found, field)
        sampling = work.rsplit(", guidance", 1)[0].split(", ")[-3:]
        panels[0, column].set_title(", ".join(sampling), fontsize=11)
        panels[1, column].set_xlabel("work of the network left, in steps" if of_work else "evaluations of the network")
        panels[1, column].xaxis.get_major_locator().set_params(integer=True)
    for label, panel in zip(LABELS.values(), panels[:, 0], strict=True):
        panel.set_ylabel(label)
    panels[0, 0].set_ylim(7, HIGHEST + 1)
    lines = {line.get_label(): line for panel in panels[0] for line in panel.get_lines()}
    names = [name for method in COLORS if (name := LEGEND.get(method, method)) in lines]
    handles = [lines[name] for name in names]
    if any(panel.collections for panel in panels.flat):
        handles.append(pyplot.Rectangle((0, 0), 1, 1, color="0.72"))
        names.append("here fewer steps are nearer than Reuse Steps")
    figure.legend(handles, names, loc="outside lower center", ncols=min(3, 1 + len(works)), frameon=False, fontsize=10)
    figure.suptitle("How near to the picture with all steps: higher is nearer, further left is faster", fontsize=13)
    figure.savefig(path, dpi=100, facecolor="white")
    pyplot.close(figure)


def _method(row: dict[str, Any]) -> str:
    name = str(row["name"])
    return PLAIN.get(name.split()[-1]) or (TOME if name.count(",") == 1 and TOME in name else name.rsplit(" ", 1)[0])


def _left(row: dict[str, Any]) -> float | None:
    """Return the evaluations that a row leaves; of what reduces each of them, as many as have its operations."""
    numbers, steps = row["quality"], int(row["work"].split(" steps")[0].split(" ")[-1])
    return numbers["work_left"] * steps if "work_left" in numbers else numbers.get("evaluations")


def _draw(panel: Any, rows: Rows, field: str) -> None:
    """Draw each method as a line through its settings, and budgets and presets beside ours."""
    import numpy

    # What leaves out less than a step leaves most pictures as they are.
    most = max(row["quality"]["evaluations"] for row in rows if row["name"].endswith(" steps"))
    drawn: dict[str, list[tuple[float, float, str]]] = {}
    for method, color in COLORS.items():
        points = sorted(
            (left, min(row["quality"][field], HIGHEST), row["name"].split()[-1])
            for row in rows
            if _method(row) == method and (left := _left(row)) is not None and left <= most + 1e-6
        )
        if not points:
            continue
        drawn[method] = points
        ours, plain = method in LEGEND, method in PLAIN.values()
        panel.plot(
            *_curve(points), color=color, label=LEGEND.get(method, method), linestyle="--" if plain else "-",
            linewidth=2.4 if ours else 1.5, marker="" if plain else "o", markersize=5, zorder=3 if ours else 2,
        )  # fmt: skip
        for *place, setting in points if ours else ():
            _write(panel, setting.lstrip("0"), tuple(place), (-4, 4), "right", color)
    if {REUSE, FEWER} <= drawn.keys():
        across = numpy.linspace(max(drawn[REUSE][0][0], drawn[FEWER][0][0]), drawn[REUSE][-1][0], 200)
        ours, fewer = (numpy.interp(across, *_curve(drawn[method])) for method in (REUSE, FEWER))
        if (fewer > ours).any():
            panel.fill_between(across, ours, fewer, where=fewer > ours, color="0.72", linewidth=0)
    for name, side in {"bf16": "left", "another seed": "right"}.items():
        for row in (row for row in rows if row["name"] == name):
            panel.axhline(row["quality"][field], color="0.6", linestyle=":", linewidth=1)
            place = (0.01 if side == "left" else 1, row["quality"][field])
            _write(panel, name, place, (0, 2), side, "0.4", xycoords=("axes fraction", "data"), fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25)


def _curve(points: Iterable[tuple[float, float, str]]) -> tuple[list[float], list[float]]:
    across, up, _ = zip(*points, strict=True)
    return list(across), list(up)


def _write(panel: Any, text: str, place: Any, off: tuple[int, int], side: str, color: str, **more: Any) -> None:
    more = {"fontsize": 8.5} | more
    panel.annotate(text, place, xytext=off, textcoords="offset points", ha=side, color=color, **more)


if __name__ == "__main__":
    *files, last = map(Path, sys.argv[1:])
    files, target = (files, last) if files else ([last], last.with_suffix(".png"))
    plot([row for file in files for row in json.loads(file.read_text(encoding="utf-8"))["rows"]], target)
