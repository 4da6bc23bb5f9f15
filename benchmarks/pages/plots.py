"""The plots of step_caches.py, block_caches.py and peers.py: how near the picture stays, over the work that is left.

``python benchmarks/pages/plots.py FILE.json`` draws that of a file of results anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[dict[str, Any]]
Point = tuple[float, float, str]
"""Work, nearness, and what is written beside it."""

FEWER, LATE, REUSE, TOME = "fewer steps", "late levels left out", "Reuse Steps", "Apply ToMe"
PLAIN = {"steps": FEWER, "levels": LATE}
"""What the plain model draws with less work, by the last word of a row's name."""
COLORS = {REUSE: "#0072b2", FEWER: "#222222", LATE: "#777777", "EasyCache": "#d55e00", "LazyCache": "#009e73",
          "DeepCache": "#b0589a", "Spectrum": "#e69f00", "TeaCache": "#d55e00", "MagCache": "#009e73",
          "First Block": "#b0589a", "cache-dit": "#e69f00", "cache-dit, TaylorSeer": "#56b4e9"}  # fmt: skip
"""Told apart by colour-blind eyes too, on white; of those of one plot."""
LEGEND = {REUSE: "Reuse Steps, with its budget"}
LABELS = {"psnr": "mean of the pictures, dB", "psnr_worst": "worst of the pictures, dB"}
HIGHEST = 70
"""dB; what is nearer is drawn there."""
WAYS = {
    TOME: ("Apply ToMe, presets", COLORS[REUSE]),
    "ComfyUI TomePatchModel": ("ComfyUI's TomePatchModel 0.5", COLORS["EasyCache"]),
    " steps": (FEWER, COLORS[FEWER]),
    " levels": (LATE, COLORS[LATE]),
}
"""Of peers.py: what a row's name has in it, the words of the legend, the color."""


def plot(rows: Rows, path: Path) -> None:
    """Draw a file's rows, if there is something to see side by side."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    draw = _of_work if any(row["name"].startswith(TOME) for row in rows) else _of_evaluations
    figure = draw(pyplot, rows)
    if figure is not None:
        figure.savefig(path, dpi=100, facecolor="white")
        pyplot.close(figure)


def _of_work(pyplot: Any, rows: Rows) -> Any:
    """Draw the mean beside the worst picture, a line for each way, over the work of the network."""
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
    for (field, title), panel in zip(LABELS.items(), panels, strict=True):
        for name, (label, color) in WAYS.items():
            points = [(_work(row), row["quality"][field], row["name"]) for row in rows if name in row["name"]]
            _line(panel, points, label, color, label in PLAIN.values(), width=2, marker="o")
            off, side = ((-5, 5), "right") if name == TOME else ((4, -11), "left")
            for work, nearness, whole in points:
                short = whole.replace("Apply ToMe, ", "").replace("ComfyUI ", "")
                _write(panel, short, (work, nearness), off, side, color)
        _plain(panel)
        panel.set_title(title, fontsize=11)
        panel.set_xlabel("work of the network left")
        panel.set_xlim(0.62, 0.98)
        panel.xaxis.set_major_formatter("{x:.0%}")
    panels[0].legend(frameon=False, fontsize=9, loc="lower right")
    return figure


def _work(row: dict[str, Any]) -> float:
    """Return the share of the work that a row leaves; of fewer steps, the share of the steps."""
    steps = int(row["work"].split(" steps")[0].split(" ")[-1])
    return float(row["quality"].get("work_left", row["quality"].get("evaluations", steps) / steps))


def _of_evaluations(pyplot: Any, rows: Rows) -> Any:
    """Draw the mean above the worst picture, a column for each solver; None without rivals."""
    works = list(dict.fromkeys(row["work"] for row in rows if _method(row) in COLORS.keys() - {*PLAIN.values(), REUSE}))
    if not works:
        return None
    size = (max(1.2 + 3.6 * len(works), 7.5), 7.4)
    figure, panels = pyplot.subplots(
        2, len(works), figsize=size, sharex="col", sharey=True, squeeze=False, layout="constrained"
    )
    for column, work in enumerate(works):
        found = [row for row in rows if row["work"] == work]
        for field, panel in zip(LABELS, panels[:, column], strict=True):
            _lines(panel, found, field)
            _plain(panel)
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
    return figure


def _method(row: dict[str, Any]) -> str:
    return PLAIN.get(row["name"].split()[-1]) or str(row["name"].rsplit(" ", 1)[0])


def _lines(panel: Any, rows: Rows, field: str) -> None:
    """Draw each method as a line through its settings, and budgets beside those of Reuse Steps."""
    import numpy

    drawn: dict[str, list[Point]] = {}
    # What leaves out less than a step leaves most pictures as they are.
    most = max(row["quality"]["evaluations"] for row in rows if row["name"].endswith(" steps"))
    for method, color in COLORS.items():
        drawn[method] = sorted(
            (row["quality"]["evaluations"], min(row["quality"][field], HIGHEST), row["name"].split()[-1])
            for row in rows
            if _method(row) == method and row["quality"]["evaluations"] <= most
        )
        style = {"width": 2.4 if method == REUSE else 1.5, "marker": "" if method in (FEWER, LATE) else "o"}
        _line(
            panel, drawn[method], LEGEND.get(method, method), color, method in (FEWER, LATE), method == REUSE, **style
        )
    for *place, budget in drawn[REUSE]:
        _write(panel, budget.lstrip("0"), tuple(place), (-4, 4), "right", COLORS[REUSE])
    if drawn[REUSE] and drawn[FEWER]:
        across = numpy.linspace(max(drawn[REUSE][0][0], drawn[FEWER][0][0]), drawn[REUSE][-1][0], 200)
        ours, fewer = (
            numpy.interp(across, *([point[axis] for point in drawn[method]] for axis in (0, 1)))
            for method in (REUSE, FEWER)
        )
        if (fewer > ours).any():
            panel.fill_between(across, ours, fewer, where=fewer > ours, color="0.72", linewidth=0)
    for name, side in {"bf16": "left", "another seed": "right"}.items():
        for row in (row for row in rows if row["name"] == name):
            panel.axhline(row["quality"][field], color="0.6", linestyle=":", linewidth=1)
            place = (0.01 if side == "left" else 1, row["quality"][field])
            _write(panel, name, place, (0, 2), side, "0.4", xycoords=("axes fraction", "data"), fontsize=8)


def _line(
    panel: Any, points: Sequence[Point], label: str, color: str, dashed: bool, above: bool = False, *, width: float,
    marker: str,
) -> None:  # fmt: skip
    if points:
        across, up, _ = zip(*sorted(points), strict=True)
        panel.plot(across, up, color=color, label=label, markersize=5, linestyle="--" if dashed else "-",
                   linewidth=width, marker=marker, zorder=3 if above else 2)  # fmt: skip


def _write(panel: Any, text: str, place: Any, off: tuple[int, int], side: str, color: str, **more: Any) -> None:
    more = {"fontsize": 8.5} | more
    panel.annotate(text, place, xytext=off, textcoords="offset points", ha=side, color=color, **more)


def _plain(panel: Any) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25)


if __name__ == "__main__":
    results = Path(sys.argv[1])
    plot(json.loads(results.read_text(encoding="utf-8"))["rows"], results.with_suffix(".png"))
