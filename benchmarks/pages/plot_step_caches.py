"""The plot of step_caches.py and block_caches.py: how near the picture stays, over the evaluations that are left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[dict[str, Any]]
FEWER, REUSE = "fewer steps", "Reuse Steps"
COLORS = {REUSE: "#0072b2", FEWER: "#222222", "EasyCache": "#d55e00", "LazyCache": "#009e73", "DeepCache": "#b0589a",
          "Spectrum": "#e69f00", "TeaCache": "#d55e00", "MagCache": "#009e73", "First Block": "#b0589a",
          "cache-dit": "#e69f00", "cache-dit, TaylorSeer": "#56b4e9"}  # fmt: skip
"""Told apart by colour-blind eyes too, on white; of those of one plot."""
LEGEND = {REUSE: "Reuse Steps, with its budget"}
LABELS = {"psnr": "mean of the pictures, dB", "psnr_worst": "worst of the pictures, dB"}
HIGHEST = 70
"""dB; what is nearer is drawn there."""


def plot(rows: Rows, path: Path) -> None:
    """Draw the mean above the worst picture, a column for each solver."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    # Without rivals there is nothing to see side by side.
    works = list(dict.fromkeys(row["work"] for row in rows if _method(row) in COLORS.keys() - {FEWER, REUSE}))
    if not works:
        return
    size = (max(1.2 + 3.6 * len(works), 7.5), 7.4)
    figure, panels = pyplot.subplots(
        2, len(works), figsize=size, sharex="col", sharey=True, squeeze=False, layout="constrained"
    )
    for column, work in enumerate(works):
        found = [row for row in rows if row["work"] == work]
        for field, panel in zip(LABELS, panels[:, column], strict=True):
            _lines(panel, found, field)
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(alpha=0.25)
        *_, sampler, scheduler, steps, _, _ = work.split(", ")
        panels[0, column].set_title(f"{sampler}, {scheduler}, {steps}", fontsize=11)
        panels[1, column].set_xlabel("evaluations of the network")
        panels[1, column].xaxis.get_major_locator().set_params(integer=True)
    for (_, label), panel in zip(LABELS.items(), panels[:, 0], strict=True):
        panel.set_ylabel(label)
    panels[0, 0].set_ylim(7, HIGHEST + 1)
    handles, names = panels[0, 0].get_legend_handles_labels()
    if any(panel.collections for panel in panels.flat):
        handles.append(pyplot.Rectangle((0, 0), 1, 1, color="0.72"))
        names.append("here fewer steps are nearer than Reuse Steps")
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=10)
    figure.suptitle("How near to the picture with all steps: higher is nearer, further left is faster", fontsize=13)
    figure.savefig(path, dpi=100, facecolor="white")
    pyplot.close(figure)


def _method(row: dict[str, Any]) -> str:
    return FEWER if row["name"].endswith(" steps") else row["name"].rsplit(" ", 1)[0]


def _lines(panel: Any, rows: Rows, field: str) -> None:
    """Draw each method as a line through its settings, and budgets beside those of Reuse Steps."""
    import numpy

    drawn: dict[str, list[tuple[float, float]]] = {}
    # What leaves out less than a step leaves most pictures as they are.
    most = max(row["quality"]["evaluations"] for row in rows if row["name"].endswith(" steps"))
    for method, color in COLORS.items():
        points = sorted(
            (row["quality"]["evaluations"], min(row["quality"][field], HIGHEST), row["name"].split()[-1])
            for row in rows
            if _method(row) == method and row["quality"]["evaluations"] <= most
        )
        drawn[method] = [point[:2] for point in points]
        style = {"linewidth": 2.4 if method == REUSE else 1.5, "marker": "" if method == FEWER else "o"}
        if not points:
            continue
        panel.plot(
            *([point[axis] for point in points] for axis in (0, 1)), color=color, label=LEGEND.get(method, method),
            markersize=5, linestyle="--" if method == FEWER else "-", zorder=3 if method == REUSE else 2, **style,
        )  # fmt: skip
        for evaluations, nearness, budget in points if method == REUSE else ():
            panel.annotate(budget.lstrip("0"), (evaluations, nearness), xytext=(-4, 4), textcoords="offset points",
                           ha="right", color=color, fontsize=8.5)  # fmt: skip
    if drawn[REUSE] and drawn[FEWER]:
        (first, *_), (last, *_) = drawn[REUSE][0], drawn[REUSE][-1]
        across = numpy.linspace(max(first, drawn[FEWER][0][0]), last, 200)
        ours, fewer = (numpy.interp(across, *zip(*drawn[method], strict=True)) for method in (REUSE, FEWER))
        if (fewer > ours).any():
            panel.fill_between(across, ours, fewer, where=fewer > ours, color="0.72", linewidth=0)
    for name, side in {"bf16": "left", "another seed": "right"}.items():
        for row in (row for row in rows if row["name"] == name):
            panel.axhline(row["quality"][field], color="0.6", linestyle=":", linewidth=1)
            place = (0.01 if side == "left" else 1, row["quality"][field])
            panel.annotate(name, place, xycoords=("axes fraction", "data"), xytext=(0, 2),
                           textcoords="offset points", ha=side, fontsize=8, color="0.4")  # fmt: skip


if __name__ == "__main__":  # the plot of a file of results anew
    import json

    results = Path(sys.argv[1])
    plot(json.loads(results.read_text(encoding="utf-8"))["rows"], results.with_suffix(".png"))
